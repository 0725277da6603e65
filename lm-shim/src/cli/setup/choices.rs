//! Who can be chosen to answer, and what is known of each. The daemon knows two wire formats; these are
//! the names that people look for.

/// One line of the menu.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Choice {
    /// What `--provider` calls it.
    pub(super) name: &'static str,
    /// What the menu calls it.
    pub(super) title: &'static str,
    /// The setting `provider`.
    pub(super) provider: &'static str,
    /// Its address; none where only the person knows it, or where the daemon knows it.
    pub(super) address: Option<&'static str>,
    /// Whether an address must be given.
    pub(super) asks_address: bool,
    /// The model that the daemon takes where none is given.
    pub(super) model: Option<&'static str>,
    /// Whether there is no use without a key.
    pub(super) needs_key: bool,
    /// The variable that other tools keep its key in.
    pub(super) variable: Option<&'static str>,
}

const SERVER: Choice = Choice {
    name: "",
    title: "",
    provider: "openai",
    address: None,
    asks_address: false,
    model: None,
    needs_key: false,
    variable: None,
};

/// Everything that can be chosen, in the order of the menu.
pub(super) const CHOICES: [Choice; 10] = [
    Choice {
        name: "anthropic",
        title: "Anthropic",
        provider: "anthropic",
        model: Some("claude-haiku-5-5"),
        needs_key: true,
        variable: Some("ANTHROPIC_API_KEY"),
        ..SERVER
    },
    // The address is stored: another session's keys must not decide where code is sent.
    Choice {
        name: "openai",
        title: "OpenAI",
        address: Some("https://api.openai.com/v1"),
        model: Some("gpt-6-luna"),
        needs_key: true,
        variable: Some("OPENAI_API_KEY"),
        ..SERVER
    },
    Choice {
        name: "deepseek",
        title: "DeepSeek",
        address: Some("https://api.deepseek.com"),
        model: Some("deepseek-flash"),
        needs_key: true,
        variable: Some("DEEPSEEK_API_KEY"),
        ..SERVER
    },
    Choice {
        name: "openrouter",
        title: "OpenRouter",
        address: Some("https://openrouter.ai/api/v1"),
        needs_key: true,
        ..SERVER
    },
    Choice { name: "ollama", title: "Ollama, on this machine", address: Some("http://localhost:11434/v1"), ..SERVER },
    Choice {
        name: "lmstudio",
        title: "LM Studio, on this machine",
        address: Some("http://localhost:1234/v1"),
        ..SERVER
    },
    Choice {
        name: "llamacpp",
        title: "llama.cpp, on this machine",
        address: Some("http://localhost:8080/v1"),
        ..SERVER
    },
    Choice { name: "vllm", title: "vLLM, on this machine", address: Some("http://localhost:8000/v1"), ..SERVER },
    Choice { name: "other", title: "another OpenAI-compatible server", asks_address: true, ..SERVER },
    Choice { name: "offline", title: "nobody: offline, nothing leaves this machine", provider: "offline", ..SERVER },
];

/// The names for `--provider`.
pub(super) fn names() -> [&'static str; CHOICES.len()] {
    CHOICES.map(|choice| choice.name)
}

/// The choice of a name, or of its number in the menu.
pub(super) fn find(text: &str) -> Option<Choice> {
    let number = text.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
    CHOICES
        .into_iter()
        .enumerate()
        .find(|(index, choice)| Some(*index) == number || choice.name == text)
        .map(|(_, choice)| choice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_found() {
        assert_eq!(find("1").unwrap().name, "anthropic");
        assert_eq!(find("10").unwrap().provider, "offline");
        assert_eq!(find("deepseek").unwrap().variable, Some("DEEPSEEK_API_KEY"));
        assert_eq!([find("0"), find("11"), find(""), find("Anthropic")], [None; 4]);
    }
}
