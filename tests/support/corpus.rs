//! Trees of made-up source code, the same for the same seed.
//!
//! Words follow Zipf's law and identifiers are made of words, as in real code, so that an index of
//! such a tree has a realistic vocabulary.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

/// What a tree is made of.
#[derive(Clone, Copy, Debug)]
pub struct Corpus {
    /// Decides everything that is random.
    pub seed: u64,
    /// How many files.
    pub files: usize,
    /// The usual size of a file in bytes; most are smaller, few are much larger.
    pub usual_bytes: usize,
    /// Files of one directory.
    pub files_per_directory: usize,
}

/// SplitMix64: small, fast, and the same everywhere.
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap()
    }

    /// Between 0 and 1.
    fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Small numbers often, large ones seldom: rank r about as often as 1/r.
    fn zipf(&mut self, bound: usize) -> usize {
        let picked = (bound as f64).powf(self.fraction()) - 1.0;
        (picked as usize).min(bound - 1)
    }
}

const COMMON: &str = "get set data value name type index count list item node key map file path read write parse \
    format error result state config option user request response client server handle event message queue task \
    worker thread lock cache buffer stream byte length size offset start end next previous parent child tree graph \
    edge vertex token lexer parser syntax visit walk build make create delete remove insert update find search match \
    filter sort merge split join map reduce fold check test assert expect mock time date clock timer delay retry \
    limit rate budget price cost order invoice payment account session login password hash sign verify encode decode \
    compress expand load save store fetch push pull sync commit branch version schema table column row query record \
    field struct class object method module package import export link symbol address port socket connect accept \
    listen send receive timeout cancel abort close open flush drain poll wait notify signal channel context scope";
const SYLLABLES: &str = "ar bel cor dan el fen gor hal ir jun kel lor mar nor or pel qua ren sol tar ul ven wor xan yor zel \
    bri cla dro fla gri kra ple sto tri vla";

struct Vocabulary {
    words: Vec<String>,
}

impl Vocabulary {
    fn new() -> Self {
        let mut words: Vec<String> = COMMON.split_whitespace().map(str::to_owned).collect();
        let syllables: Vec<&str> = SYLLABLES.split_whitespace().collect();
        // Names of people's own making: rarer, and many.
        for first in &syllables {
            for second in &syllables {
                for third in &syllables {
                    words.push(format!("{first}{second}{third}"));
                }
            }
        }
        Self { words }
    }

    fn word(&self, random: &mut Random) -> &str {
        &self.words[random.zipf(self.words.len())]
    }

    fn snake(&self, random: &mut Random) -> String {
        let mut name = self.word(random).to_owned();
        for _ in 0..random.below(3) {
            name.push('_');
            name.push_str(self.word(random));
        }
        name
    }

    fn camel(&self, random: &mut Random, capital: bool) -> String {
        let mut name = String::new();
        for part in 0..=random.below(3) {
            let word = self.word(random);
            if part == 0 && !capital {
                name.push_str(word);
            } else {
                name.push_str(&word[..1].to_uppercase());
                name.push_str(&word[1..]);
            }
        }
        name
    }

    fn prose(&self, random: &mut Random) -> String {
        let words: Vec<&str> = (0..6 + random.below(10)).map(|_| self.word(random)).collect();
        words.join(" ")
    }
}

const EXTENSIONS: [&str; 7] = ["rs", "py", "ts", "go", "java", "c", "md"];

/// One definition with its body, in a language.
fn write_definition(text: &mut String, language: &str, words: &Vocabulary, random: &mut Random) {
    let statements = 2 + random.below(9);
    let (open, indent, close) = match language {
        "rs" => (
            format!(
                "/// {}\npub fn {}({}: &{}) -> {} {{",
                words.prose(random),
                words.snake(random),
                words.word(random),
                words.camel(random, true),
                words.camel(random, true)
            ),
            "    ",
            "}\n",
        ),
        "py" => (
            format!(
                "def {}(self, {}):\n    \"\"\"{}\"\"\"",
                words.snake(random),
                words.snake(random),
                words.prose(random)
            ),
            "    ",
            "",
        ),
        "ts" => (
            format!(
                "// {}\nexport function {}({}: {}): {} {{",
                words.prose(random),
                words.camel(random, false),
                words.camel(random, false),
                words.camel(random, true),
                words.camel(random, true)
            ),
            "  ",
            "}\n",
        ),
        "go" => (
            format!(
                "// {}\nfunc (s *{}) {}({} {}) error {{",
                words.prose(random),
                words.camel(random, true),
                words.camel(random, true),
                words.camel(random, false),
                words.camel(random, true)
            ),
            "\t",
            "}\n",
        ),
        "java" => (
            format!(
                "    /** {} */\n    public {} {}({} {}) {{",
                words.prose(random),
                words.camel(random, true),
                words.camel(random, false),
                words.camel(random, true),
                words.camel(random, false)
            ),
            "        ",
            "    }\n",
        ),
        "c" => (
            format!(
                "/* {} */\nstatic int {}(struct {} *{})\n{{",
                words.prose(random),
                words.snake(random),
                words.snake(random),
                words.word(random)
            ),
            "\t",
            "}\n",
        ),
        _ => (format!("## {}\n", words.prose(random)), "", ""),
    };
    text.push_str(&open);
    text.push('\n');
    for _ in 0..statements {
        let statement = match language {
            "md" => words.prose(random),
            "py" => format!("{} = self.{}({})", words.snake(random), words.snake(random), words.snake(random)),
            "rs" | "c" => format!("{}({}, {});", words.snake(random), words.snake(random), random.below(4096)),
            _ => format!(
                "{}.{}({});",
                words.camel(random, false),
                words.camel(random, false),
                words.camel(random, false)
            ),
        };
        let _ = writeln!(text, "{indent}{statement}");
    }
    text.push_str(close);
    text.push('\n');
}

impl Corpus {
    /// 5,000 source files, about 11 kB each.
    #[must_use]
    pub fn middling() -> Self {
        Self { seed: 1, files: 5_000, usual_bytes: 11_600, files_per_directory: 25 }
    }

    /// 25,000 source files, 290 MB.
    #[must_use]
    pub fn large() -> Self {
        Self { seed: 2, files: 25_000, usual_bytes: 11_600, files_per_directory: 25 }
    }

    /// 500,000 small files, past the bounds of an index.
    #[must_use]
    pub fn huge() -> Self {
        Self { seed: 3, files: 500_000, usual_bytes: 1_000, files_per_directory: 100 }
    }

    /// Writes the tree below a directory, unless it was written there before. Gives its bytes.
    pub fn write(&self, root: &Path) -> u64 {
        let marker = root.with_extension("written");
        let description = format!("{self:?}");
        if let Ok(written) = fs::read_to_string(&marker)
            && let Some(bytes) = written.strip_prefix(&description)
        {
            return bytes.trim().parse().unwrap();
        }
        let words = Vocabulary::new();
        let mut random = Random(self.seed);
        let mut total = 0;
        let mut directory = PathBuf::new();
        for number in 0..self.files {
            if number % self.files_per_directory == 0 {
                directory = root.join(words.word(&mut random)).join(words.word(&mut random)).join(format!(
                    "{}{}",
                    words.word(&mut random),
                    number / self.files_per_directory
                ));
                fs::create_dir_all(&directory).unwrap();
            }
            let language = EXTENSIONS[random.zipf(EXTENSIONS.len())];
            let mut text = String::new();
            // Sizes of source files are skewed: half are under the usual one, some many times it.
            let size = self.usual_bytes as f64 * (0.2 + 1.6 * random.fraction());
            while (text.len() as f64) < size {
                write_definition(&mut text, language, &words, &mut random);
            }
            total += text.len() as u64;
            fs::write(directory.join(format!("{}_{number}.{language}", words.snake(&mut random))), text).unwrap();
        }
        fs::write(marker, format!("{description} {total}")).unwrap();
        total
    }

    /// A question about such a tree; the number chooses which.
    #[must_use]
    pub fn question(number: u64) -> String {
        let words = Vocabulary::new();
        let mut random = Random(number ^ 0x5eed);
        match number % 3 {
            0 => format!("Where is `{}` implemented and who calls it?", words.snake(&mut random)),
            1 => format!(
                "How does the {} of the {} handle a {} {}?",
                words.word(&mut random),
                words.word(&mut random),
                words.word(&mut random),
                words.word(&mut random)
            ),
            _ => format!("What happens when {} fails in {}?", words.prose(&mut random), words.camel(&mut random, true)),
        }
    }
}
