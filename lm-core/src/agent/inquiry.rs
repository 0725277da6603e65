//! One question, answered by a model that looks things up: the rounds from the question to the
//! answer.
//!
//! The inquiry owns its fork and nothing else: what it is given is the model, the tools and the
//! bounds; what it gives back is the answer and the fork, to be committed by whoever keeps the log.
//! Half a conversation never leaves here: where there is no answer there is no fork either.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio_util::sync::CancellationToken;

use super::{
    briefing::{Briefing, News, Watch},
    citations,
    prefix_gate::PrefixGate,
    printed_calls,
    prompts::{self, QuestionBudget},
};
use crate::{
    conversation::{Block, Message, Role},
    llm::{
        Breakpoint, CallControl, Completion, Lifetime, ModelClient, ModelError, ModelEvent, ModelRequest, Position,
        Purpose, Stop, ToolSpec, Usage, pricing::Prices,
    },
    memory::{
        log::{Fork, Source},
        prompt::Breakpoints,
        tokens::TokenEstimate,
        told::Said,
    },
    tools::{ToolOutput, Tools},
};

/// Room for what a model thinks before it answers; thinking counts into a completion's tokens.
const THINKING_TOKENS: u32 = 4096;
/// A completion takes at most this part of the window.
const COMPLETION_SHARE: u64 = 3;
/// What is kept free at the end of the window for estimates that err.
pub(super) const WINDOW_RESERVE: f64 = 0.02;
/// How far past the soft deadline an answer that is being written may go.
const GRACE: Duration = Duration::from_secs(4);
/// How long one tool may take at most.
const TOOL_LIMIT: Duration = Duration::from_secs(20);
/// How many calls of one turn are run.
const CALLS_MAX: usize = 16;
/// Tokens that a provider adds to a prompt by itself, at most.
const AROUND_TOKENS: u64 = 4096;
/// Bytes of text that a token stands for, at most, over a whole prompt.
const BYTES_PER_TOKEN_MAX: u64 = 16;
/// A text this many times longer than the answer may be is not waited for.
const OVERLONG: usize = 8;
/// Told in place of a result that no longer fits.
const NOT_SHOWN: &str = "[not shown: the context window is full]";

/// What bounds an inquiry.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The longest answer in tokens.
    pub answer_tokens: u32,
    /// When the answer is due.
    pub due: Instant,
    /// The most rounds with tools.
    pub rounds: u32,
    /// The window in tokens, prompt and answer together.
    pub window: u64,
    /// The longest completion that the model gives, where that is known.
    pub completion_max: Option<u32>,
    /// Whether an answer without any grounding is sent back once.
    pub look_first: bool,
    /// How long the provider keeps what the prompt begins with.
    pub lifetime: Lifetime,
}

/// Takes the usage of one request and its price in dollars, where that is known; false where nothing
/// more may be spent.
pub type Book<'a> = dyn Fn(&Usage, Option<f64>) -> bool + Send + Sync + 'a;

/// A question and all that is needed to answer it.
#[expect(missing_debug_implementations, reason = "it holds a closure")]
pub struct Inquiry<'a> {
    /// Who answers.
    pub model: &'a dyn ModelClient,
    /// What it may look with.
    pub tools: &'a Arc<Tools>,
    /// The same, as it is told of them.
    pub tool_specs: &'a [ToolSpec],
    /// The system text.
    pub system: &'a str,
    /// The question, in the asker's words.
    pub question: &'a str,
    /// What is told along with it.
    pub briefing: &'a Briefing,
    /// Tells whether what was shown still holds when the answer is there.
    pub watch: &'a dyn Watch,
    /// Where requests that share the conversation's prefix wait for each other.
    pub gate: &'a PrefixGate,
    /// Its bounds.
    pub bounds: Bounds,
    /// Names the log in requests.
    pub conversation: Option<&'a str>,
    /// How large text is.
    pub estimate: TokenEstimate,
    /// What tokens cost, where that is known.
    pub prices: Option<&'a Prices>,
    /// Takes what each request cost as soon as it is known, and says whether another one may follow.
    pub book: &'a Book<'a>,
    /// Stops all of it.
    pub cancel: &'a CancellationToken,
}

/// An answer.
#[derive(Debug)]
pub struct Answered {
    /// The model's text.
    pub text: String,
    /// Whether it was cut at a limit.
    pub truncated: bool,
    /// The whole conversation of this question.
    pub fork: Fork,
    /// The files whose text the model was shown for this question.
    pub sources: BTreeSet<Source>,
    /// Files that changed while it was answering, of which it could not be told any more.
    pub stale: Vec<String>,
    /// What was said and done.
    pub tally: Tally,
    /// The estimate with what was learned.
    pub estimate: TokenEstimate,
}

/// What an inquiry took, answered or not.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Tally {
    /// Tokens over all requests.
    pub usage: Usage,
    /// Dollars over all requests whose price is known.
    pub cost_usd: f64,
    /// Whether there were others.
    pub unpriced: bool,
    /// Requests that were answered.
    pub requests: u32,
    /// Tools that were run.
    pub tool_calls: u32,
    /// Tokens of the last prompt.
    pub prompt_tokens: u64,
}

impl Tally {
    /// Both together; the prompt is the later one's.
    #[must_use]
    pub fn plus(&self, later: &Self) -> Self {
        Self {
            usage: self.usage.plus(&later.usage),
            cost_usd: self.cost_usd + later.cost_usd,
            unpriced: self.unpriced || later.unpriced,
            requests: self.requests + later.requests,
            tool_calls: self.tool_calls + later.tool_calls,
            prompt_tokens: later.prompt_tokens,
        }
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum InquiryError {
    /// The asker went away.
    #[error("cancelled")]
    Cancelled,
    /// The model could not be asked, or gave nothing usable.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// Time ran out in the middle of the answer.
    #[error("time ran out while the model was answering")]
    Late {
        /// What it had said by then.
        text: String,
    },
    /// It said far more than an answer may be long, without an end.
    #[error("the model's answer had no end")]
    Endless {
        /// The beginning of it.
        text: String,
    },
    /// It ended its turn without a word, twice.
    #[error("the model ended its turn without an answer")]
    Empty,
    /// It declined.
    #[error("the model declined to answer")]
    Refused,
}

/// A failure and what it cost all the same.
#[derive(Debug)]
pub struct Failed {
    /// Why.
    pub error: InquiryError,
    /// What it took.
    pub tally: Tally,
}

impl From<InquiryError> for Failed {
    fn from(error: InquiryError) -> Self {
        Self { error, tally: Tally::default() }
    }
}

/// Where an inquiry stands.
struct Running<'a, 'b> {
    inquiry: &'b Inquiry<'a>,
    fork: Fork,
    sources: BTreeSet<Source>,
    tally: Tally,
    estimate: TokenEstimate,
    /// Bytes of the request whose prompt tokens were reported last.
    reported_bytes: usize,
    /// Nothing more may be spent than what it takes to answer.
    out_of_budget: bool,
    /// Told that no tools can be used any more.
    told_to_answer: bool,
    /// Sent back once for having looked at nothing.
    sent_back: bool,
    /// Told once that a call printed as text is none.
    told_calls_are_not_text: bool,
    /// Ended a turn without a word.
    was_empty: bool,
    /// An answer was sent back since files had changed.
    told_of_changes: bool,
    /// Files that changed while it was answering, of which it was not told.
    stale: Vec<String>,
    longest_round: Duration,
    rounds: u32,
}

impl Inquiry<'_> {
    /// Asks in `fork` until there is an answer.
    ///
    /// # Errors
    /// Where there is none; the fork is then gone, and nothing of it may be committed.
    pub async fn answer(&self, fork: Fork, progress: &(dyn Fn(String) + Send + Sync)) -> Result<Answered, Failed> {
        let mut running = Running {
            inquiry: self,
            fork,
            sources: BTreeSet::new(),
            tally: Tally::default(),
            estimate: self.estimate.clone(),
            reported_bytes: 0,
            out_of_budget: false,
            told_to_answer: false,
            sent_back: false,
            told_calls_are_not_text: false,
            was_empty: false,
            told_of_changes: false,
            stale: Vec::new(),
            longest_round: Duration::ZERO,
            rounds: 0,
        };
        running.ask();
        match running.rounds(progress).await {
            Ok((text, truncated)) => Ok(Answered {
                text,
                truncated,
                fork: running.fork,
                sources: running.sources,
                stale: running.stale,
                tally: running.tally,
                estimate: running.estimate,
            }),
            Err(error) => Err(Failed { error, tally: running.tally }),
        }
    }
}

impl Running<'_, '_> {
    fn ask(&mut self) {
        let inquiry = self.inquiry;
        let budget = QuestionBudget {
            answer_tokens: inquiry.bounds.answer_tokens,
            time: inquiry.bounds.due.saturating_duration_since(Instant::now()),
            rounds: inquiry.bounds.rounds,
        };
        let Briefing { deltas, excerpts, said, sources } = inquiry.briefing;
        let question = prompts::question(inquiry.question, budget, excerpts);
        let texts = [deltas, &question].into_iter().filter(|text| !text.is_empty());
        let blocks = texts.map(|text| Block::Text { text: text.as_str().into() }).collect();
        self.fork.push(Message { role: Role::User, blocks });
        said.iter().for_each(|said| self.fork.say(said.clone()));
        self.sources.extend(sources.iter().cloned());
    }

    async fn rounds(&mut self, progress: &(dyn Fn(String) + Send + Sync)) -> Result<(String, bool), InquiryError> {
        loop {
            let started = Instant::now();
            let mut completion = self.complete(progress).await?;
            self.learn(&completion);
            let printed = printed_calls::parse(&completion.text(), self.inquiry.tool_specs);
            if calls(&completion).is_empty() && !printed.is_empty() {
                completion.replace_text_by_calls(printed);
            }
            let calls: Vec<Call> = calls(&completion);
            if completion.stop == Stop::Refusal {
                return Err(InquiryError::Refused);
            }
            if !calls.is_empty() {
                if self.told_to_answer && self.was_empty {
                    // Told twice, and still no answer.
                    return Err(InquiryError::Empty);
                }
                self.was_empty = self.told_to_answer;
                self.look(completion, calls, progress).await?;
                self.longest_round = self.longest_round.max(started.elapsed());
                continue;
            }
            let text = completion.text();
            if text.trim().is_empty() {
                if self.was_empty {
                    return Err(InquiryError::Empty);
                }
                // The same request again: nothing was added, so nothing is taken back.
                self.was_empty = true;
                continue;
            }
            if printed_calls::is_printed_call(&text, self.inquiry.tool_specs) {
                if self.told_calls_are_not_text || self.told_to_answer {
                    return Err(InquiryError::Empty);
                }
                self.told_calls_are_not_text = true;
                self.fork.push(Message { role: Role::Assistant, blocks: completion.blocks });
                self.fork.push(Message::user(prompts::CALLS_ARE_NOT_TEXT));
                continue;
            }
            if self.must_look_first(&text) {
                self.sent_back = true;
                self.fork.push(Message { role: Role::Assistant, blocks: completion.blocks });
                self.fork.push(Message::user(prompts::LOOK_FIRST));
                continue;
            }
            let news = self.inquiry.watch.news(&self.fork, &text).await;
            self.fork.push(Message { role: Role::Assistant, blocks: completion.blocks });
            match news {
                Some(news) if self.may_answer_again(&news) => {
                    progress(format!("looking again: {} changed meanwhile", news.paths.join(", ")));
                    self.told_of_changes = true;
                    self.fork.push(Message::user(prompts::answer_again(&news.text)));
                    news.said.into_iter().for_each(|said| self.fork.say(said));
                    self.longest_round = self.longest_round.max(started.elapsed());
                    continue;
                }
                news => self.stale = news.map_or_else(Vec::new, |news| news.paths),
            }
            let truncated = matches!(completion.stop, Stop::MaxTokens | Stop::ContextExceeded);
            return Ok(self.within_budget(text, truncated));
        }
    }

    /// Nothing was asked before, nothing was looked up, and nothing that was told is named.
    fn must_look_first(&self, answer: &str) -> bool {
        self.inquiry.bounds.look_first
            && !self.sent_back
            && !self.told_to_answer
            && self.tally.tool_calls == 0
            && !self.fork.has_answers()
            && !self.rests_on_what_was_told(answer)
    }

    fn rests_on_what_was_told(&self, answer: &str) -> bool {
        let told = self.fork.told();
        citations::find(answer).iter().any(|citation| {
            let path = citation.path.strip_prefix("./").unwrap_or(&citation.path);
            told.of(path).is_some()
        })
    }

    /// Once, where there is time, room and money for another round.
    fn may_answer_again(&self, news: &News) -> bool {
        let left = self.inquiry.bounds.due.saturating_duration_since(Instant::now());
        !self.told_of_changes
            && !self.told_to_answer
            && !self.out_of_budget
            && left > self.longest_round * 2
            && self.estimate.tokens(news.text.len()) < self.room()
    }

    async fn complete(&self, progress: &(dyn Fn(String) + Send + Sync)) -> Result<Completion, InquiryError> {
        let inquiry = self.inquiry;
        let segments = self.fork.segments();
        let breakpoints = breakpoints(&self.fork, inquiry.bounds.lifetime);
        let system = [inquiry.system];
        let request = ModelRequest {
            system: &system,
            tools: inquiry.tool_specs,
            messages: &segments,
            max_tokens: completion_tokens(&inquiry.bounds),
            breakpoints: &breakpoints,
            purpose: Purpose::Question,
            conversation: inquiry.conversation,
        };
        let control = CallControl {
            deadline: tokio::time::Instant::from_std(inquiry.bounds.due + GRACE),
            cancelled: inquiry.cancel.child_token(),
        };
        let mut first = match self.tally.requests {
            0 => inquiry.gate.enter(inquiry.bounds.due).await,
            _ => None,
        };
        let overlong = inquiry.bounds.answer_tokens as usize * OVERLONG * BYTES_PER_TOKEN_MAX as usize;
        let (mut said, stop) = (String::new(), control.cancelled.clone());
        let mut events = |event: ModelEvent<'_>| match event {
            ModelEvent::Started => {
                inquiry.gate.began();
                drop(first.take());
            }
            ModelEvent::Text(text) => {
                said.push_str(text);
                if said.len() > overlong {
                    stop.cancel();
                }
            }
            ModelEvent::Retry { after, reason } => {
                progress(format!("the provider is busy ({reason}); again in {:.1} s", after.as_secs_f64()));
            }
            ModelEvent::ToolCall { .. } => {}
        };
        let completed = inquiry.model.complete(request, &control, &mut events).await;
        match completed {
            Ok(completion) => Ok(completion),
            Err(_) if inquiry.cancel.is_cancelled() => Err(InquiryError::Cancelled),
            Err(_) if control.cancelled.is_cancelled() => {
                Err(InquiryError::Endless { text: self.within_budget(said, true).0 })
            }
            Err(ModelError::Deadline { .. }) if !said.trim().is_empty() => {
                Err(InquiryError::Late { text: self.within_budget(said, true).0 })
            }
            Err(error) => Err(error.into()),
        }
    }

    fn learn(&mut self, completion: &Completion) {
        let bytes = self.bytes();
        // A token is at least a byte; what is added around the text is small.
        let most = (bytes as u64 + AROUND_TOKENS).max(self.inquiry.bounds.window);
        let usage = completion.usage.bounded(most, u64::from(completion_tokens(&self.inquiry.bounds)) * 4);
        let charged = completion.charged_usd.filter(|cost| cost.is_finite() && *cost >= 0.0);
        let cost = charged.or_else(|| self.inquiry.prices.and_then(|prices| prices.cost(&usage)));
        self.tally.usage = self.tally.usage.plus(&usage);
        self.tally.cost_usd += cost.unwrap_or(0.0);
        self.tally.unpriced |= cost.is_none();
        self.tally.requests += 1;
        self.out_of_budget = !(self.inquiry.book)(&usage, cost);
        // No tokenizer puts so many bytes into a token: such a report would switch the window off.
        let least = bytes as u64 / BYTES_PER_TOKEN_MAX;
        if let Some(prompt) = usage.prompt().filter(|prompt| *prompt >= least) {
            let (added_bytes, added_tokens) =
                (bytes.saturating_sub(self.reported_bytes), prompt.saturating_sub(self.tally.prompt_tokens));
            self.estimate.learn(added_bytes, added_tokens);
            self.tally.prompt_tokens = prompt;
            self.reported_bytes = bytes;
        }
    }

    /// Bytes of text in the next request.
    fn bytes(&self) -> usize {
        let spec = |tool: &ToolSpec| tool.name.len() + tool.description.len() + tool.input_schema.get().len();
        let tools: usize = self.inquiry.tool_specs.iter().map(spec).sum();
        self.fork.bytes() + self.inquiry.system.len() + tools
    }

    /// Tokens of the next prompt: what was reported of the last one and an estimate of what is new.
    fn next_prompt(&self) -> u64 {
        let bytes = self.bytes();
        self.tally.prompt_tokens.saturating_add(self.estimate.tokens(bytes.saturating_sub(self.reported_bytes)))
    }

    /// Tokens that may still be added to the prompt.
    fn room(&self) -> u64 {
        let bounds = &self.inquiry.bounds;
        let kept_free = (bounds.window as f64 * WINDOW_RESERVE) as u64 + u64::from(completion_tokens(bounds));
        bounds.window.saturating_sub(kept_free).saturating_sub(self.next_prompt())
    }

    /// Runs the calls side by side and adds their results in the order of the calls.
    async fn look(
        &mut self,
        completion: Completion,
        calls: Vec<Call>,
        progress: &(dyn Fn(String) + Send + Sync),
    ) -> Result<(), InquiryError> {
        self.rounds += 1;
        self.fork.push(Message { role: Role::Assistant, blocks: completion.blocks.clone() });
        let deadline = (Instant::now() + TOOL_LIMIT).min(self.inquiry.bounds.due);
        let refused = self.told_to_answer;
        progress(looking_at(&calls));
        let outputs = calls.iter().enumerate().map(|(index, call)| {
            let tools = Arc::clone(self.inquiry.tools);
            let (name, input) = (Arc::clone(&call.name), Arc::clone(&call.input));
            let cancel = self.inquiry.cancel.clone();
            let problem = call.problem.clone();
            async move {
                match problem {
                    Some(problem) => ToolOutput { text: problem, is_error: true, files: Vec::new() },
                    None if index >= CALLS_MAX => ToolOutput {
                        text: format!("not run: at most {CALLS_MAX} calls in one turn; call it again if it is needed"),
                        is_error: true,
                        files: Vec::new(),
                    },
                    None if refused => ToolOutput {
                        text: "no more tools can be used for this question".into(),
                        is_error: true,
                        files: Vec::new(),
                    },
                    None => tools.call(name, input, deadline, cancel).await,
                }
            }
        });
        let outputs = futures_util::future::join_all(outputs).await;
        if self.inquiry.cancel.is_cancelled() {
            return Err(InquiryError::Cancelled);
        }
        self.tally.tool_calls += u32::try_from(calls.len().min(CALLS_MAX)).unwrap_or(u32::MAX);
        let mut room = self.room();
        let mut full = false;
        let mut results = Vec::with_capacity(calls.len());
        let mut said = Vec::new();
        for (call, output) in calls.iter().zip(outputs) {
            let tokens = self.estimate.tokens(output.text.len());
            let (text, is_error) = if tokens <= room {
                room -= tokens;
                for file in &output.files {
                    let path: Arc<str> = crate::files::display_path(&file.path).into();
                    let sha256: Arc<str> = file.sha256.as_str().into();
                    if file.is_shown {
                        said.push(Said::shown(Arc::clone(&path), Arc::clone(&sha256)));
                    }
                    self.sources.insert(Source { path, sha256 });
                }
                (output.text, output.is_error)
            } else {
                full = true;
                (NOT_SHOWN.to_owned(), true)
            };
            results.push((Arc::clone(&call.id), text, is_error));
        }
        self.told_to_answer = full || self.is_time_to_answer();
        if self.told_to_answer
            && let Some((_, text, _)) = results.last_mut()
        {
            text.push_str(prompts::ANSWER_NOW);
        }
        let blocks = results
            .into_iter()
            .map(|(id, text, is_error)| Block::ToolResult { id, text: text.into(), is_error })
            .collect();
        self.fork.push(Message { role: Role::User, blocks });
        said.into_iter().for_each(|said| self.fork.say(said));
        Ok(())
    }

    /// One more round like the longest so far, and then an answer, would come too late; or the rounds
    /// are used up.
    fn is_time_to_answer(&self) -> bool {
        let left = self.inquiry.bounds.due.saturating_duration_since(Instant::now());
        self.told_to_answer
            || self.out_of_budget
            || self.rounds >= self.inquiry.bounds.rounds
            || left < self.longest_round * 2
    }

    /// The text within the answer budget, and whether it was cut.
    fn within_budget(&self, text: String, truncated: bool) -> (String, bool) {
        let most = self.estimate.bytes(u64::from(self.inquiry.bounds.answer_tokens));
        if text.len() <= most {
            return (text, truncated);
        }
        let end = (0..=most).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
        (text[..end].to_owned(), true)
    }
}

/// The longest completion that is asked for, thoughts included.
fn completion_tokens(bounds: &Bounds) -> u32 {
    let wanted = bounds.answer_tokens.saturating_add(THINKING_TOKENS);
    // Servers refuse what does not fit into the window together with the prompt.
    let fits = u32::try_from(bounds.window / COMPLETION_SHARE).unwrap_or(u32::MAX);
    bounds.completion_max.map_or(wanted, |most| wanted.min(most)).min(fits)
}

/// What of a window prompts may fill when answers of `answer_tokens` are wanted.
#[must_use]
pub fn prompt_window(window: u64, answer_tokens: u32) -> u64 {
    let completion = (u64::from(answer_tokens) + u64::from(THINKING_TOKENS)).min(window / COMPLETION_SHARE);
    window.saturating_sub(completion + (window as f64 * WINDOW_RESERVE) as u64)
}

struct Call {
    id: Arc<str>,
    name: Arc<str>,
    input: Arc<str>,
    /// Why it cannot be run.
    problem: Option<String>,
}

fn calls(completion: &Completion) -> Vec<Call> {
    let problem = |id: &str| {
        let invalid = completion.invalid_calls.iter().find(|call| *call.id == *id)?;
        Some(format!("{}; call the tool again with a JSON object", invalid.problem))
    };
    let call = |block: &Block| match block {
        Block::ToolUse { id, name, input } => {
            Some(Call { id: Arc::clone(id), name: Arc::clone(name), input: Arc::clone(input), problem: problem(id) })
        }
        _ => None,
    };
    completion.blocks.iter().filter_map(call).collect()
}

fn looking_at(calls: &[Call]) -> String {
    let names: Vec<&str> = calls.iter().take(4).map(|call| &*call.name).collect();
    let more =
        if calls.len() > names.len() { format!(" and {} more", calls.len() - names.len()) } else { String::new() };
    format!("looking: {}{more}", names.join(", "))
}

fn breakpoints(fork: &Fork, lifetime: Lifetime) -> Vec<Breakpoint> {
    let wanted = Breakpoints::of(fork);
    let system = wanted.system.then_some(Position::System { block: 0 });
    let turns = wanted.turns.into_iter().map(|at| Position::Message { message: at.message, block: at.block });
    system.into_iter().chain(turns).map(|at| Breakpoint { at, lifetime }).collect()
}
