//! Asking the model to note what leaves its prompt.
//!
//! Where the provider's cache still holds the conversation the request continues it, which costs a tenth;
//! else, and where that does not fit or the model will not stop calling tools, what leaves is sent as
//! text, in pieces that fit. What comes back is read by strict rules ([`crate::memory::ledger::notes`]). A
//! summary that is empty, larger than what it sums up, or failed yields nothing; nothing is ever repaired
//! or made up. Not allowed here: keeping what was noted.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    inquiry::{Book, Tally, WINDOW_RESERVE},
    prompts,
};
use crate::{
    conversation::{Block, Message, Role},
    llm::{
        Breakpoint, CallControl, Completion, Lifetime, ModelClient, ModelError, ModelRequest, Position, Purpose, Stop,
        ToolSpec, pricing::Prices,
    },
    memory::{
        ledger::{
            Draft, Fact, Origin,
            notes::{self, Dropped, Notes, Shown},
        },
        log::Log,
        prompt::Breakpoints,
        tokens::TokenEstimate,
        transcript::{self, Piece},
    },
};

/// The longest summary, in tokens, what a model thinks included.
const SUMMARY_TOKENS: u32 = 8_192;
/// A completion takes at most this part of the window.
const COMPLETION_SHARE: u64 = 3;
/// No more requests are made for one conversation.
const REQUESTS_MAX: u32 = 12;
/// A shorter piece is not cut any more, in bytes.
const PIECE_BYTES_MIN: usize = 2_000;
/// Tokens of the instructions around a piece, at most.
const AROUND_TOKENS: u64 = 1_500;

/// Who sums up, and within which bounds.
#[expect(missing_debug_implementations, reason = "it holds a closure")]
pub struct Summariser<'a> {
    /// Who is asked.
    pub model: &'a dyn ModelClient,
    /// The tools, as the conversation has them.
    pub tool_specs: &'a [ToolSpec],
    /// The conversation's system text.
    pub system: &'a str,
    /// Names the conversation in requests.
    pub conversation: &'a str,
    /// How large text is.
    pub estimate: TokenEstimate,
    /// The window in tokens.
    pub window: u64,
    /// The longest completion that the model gives, where that is known.
    pub completion_max: Option<u32>,
    /// What tokens cost, where that is known.
    pub prices: Option<&'a Prices>,
    /// Takes what each request cost, and says whether another one may follow.
    pub book: &'a Book<'a>,
    /// When it has to be done.
    pub deadline: Instant,
    /// Stops all of it.
    pub cancel: &'a CancellationToken,
    /// The time that facts get, in seconds since 1970.
    pub at: u64,
}

/// What was noted.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Summary {
    /// The facts.
    pub drafts: Vec<Draft>,
    /// Lines that were none.
    pub dropped: Dropped,
    /// The files whose text was summed up.
    pub summarised: BTreeSet<Arc<str>>,
    /// Why something was not summed up; empty where everything was.
    pub failures: Vec<String>,
    /// What it took.
    pub tally: Tally,
}

impl Summary {
    fn take(&mut self, notes: Notes, shown: &Shown) {
        self.drafts.extend(notes.drafts);
        self.dropped = self.dropped.plus(&notes.dropped);
        self.summarised.extend(shown.paths().cloned());
    }
}

/// What the requests so far took.
#[derive(Default)]
struct Run {
    tally: Tally,
    /// Nothing more may be spent.
    out_of_budget: bool,
}

/// Why a request has no summary.
enum NoSummary {
    /// It did not fit.
    TooLong,
    /// The model calls tools instead.
    CallsTools,
    /// Something else.
    Failed(String),
}

impl Summariser<'_> {
    /// Sums up a conversation. `is_warm` says that the provider has it in its cache.
    pub async fn sum_up(&self, log: &Log, is_warm: bool) -> Summary {
        let (mut summary, mut run) = (Summary::default(), Run::default());
        let shown = transcript::shown(log);
        let whole =
            if is_warm { self.continue_conversation(log, &shown, &mut run).await } else { Err(NoSummary::TooLong) };
        match whole {
            Ok(notes) => summary.take(notes, &shown),
            Err(NoSummary::Failed(reason)) => summary.failures.push(reason),
            // In pieces, and without tools, it can be done.
            Err(NoSummary::TooLong | NoSummary::CallsTools) => self.in_pieces(log, &mut summary, &mut run).await,
        }
        summary.tally = run.tally;
        summary
    }

    async fn in_pieces(&self, log: &Log, summary: &mut Summary, run: &mut Run) {
        let room = self.window.saturating_sub(u64::from(self.completion_tokens()) + AROUND_TOKENS);
        let room = room.saturating_sub((self.window as f64 * WINDOW_RESERVE) as u64);
        let bytes = self.estimate.bytes(room).max(PIECE_BYTES_MIN);
        let mut pieces: VecDeque<Piece> = transcript::pieces(log.exchanges(), bytes).into();
        while let Some(piece) = pieces.pop_front() {
            if run.tally.requests >= REQUESTS_MAX {
                summary.failures.push(format!("it would take more than {REQUESTS_MAX} requests"));
                break;
            }
            match self.sum_up_piece(&piece, run).await {
                Ok(notes) => summary.take(notes, &piece.shown),
                Err(NoSummary::TooLong) => match piece.halves(PIECE_BYTES_MIN) {
                    Some([first, second]) => {
                        pieces.push_front(second);
                        pieces.push_front(first);
                    }
                    None => summary.failures.push("even a small part does not fit into the window".to_owned()),
                },
                Err(NoSummary::CallsTools) => summary.failures.push("it called tools that it was not given".to_owned()),
                Err(NoSummary::Failed(reason)) => {
                    // What failed once for a reason like this fails for the next piece, too.
                    summary.failures.push(reason);
                    break;
                }
            }
        }
    }

    /// Says some facts in fewer lines; `None` where that failed.
    pub async fn consolidate(&self, facts: &[&Fact]) -> (Option<Vec<Draft>>, Tally) {
        let mut shown = Shown::default();
        for source in facts.iter().flat_map(|fact| &fact.sources) {
            shown.add(Arc::clone(&source.path), Arc::clone(&source.sha256), Origin::Observed);
        }
        let lines: String = facts.iter().map(|fact| format!("{}\n", noted(fact))).collect();
        let prompt = prompts::consolidate(&lines);
        let mut run = Run::default();
        let messages = [Message::user(prompt)];
        let completion = self.complete(&[prompts::NOTE_TAKER], &[], &[&messages], &[], None, &mut run).await;
        let read = completion.and_then(|completion| self.read(&completion, lines.len(), &shown));
        (read.ok().map(|notes| notes.drafts), run.tally)
    }

    /// Asks in the conversation itself.
    async fn continue_conversation(&self, log: &Log, shown: &Shown, run: &mut Run) -> Result<Notes, NoSummary> {
        let mut fork = log.fork();
        let material = fork.bytes();
        fork.push(Message::user(prompts::NOTE_CONVERSATION.as_str()));
        // What this request adds is never read again, so no entry is written for it.
        let wanted = Breakpoints::of(&fork);
        let end = fork.end();
        let turns = wanted.turns.into_iter().filter(|at| Some(*at) != end);
        let turns = turns.map(|at| Position::Message { message: at.message, block: at.block });
        let breakpoints: Vec<Breakpoint> = std::iter::once(Position::System { block: 0 })
            .chain(turns)
            .map(|at| Breakpoint { at, lifetime: Lifetime::FiveMinutes })
            .collect();
        let tools: usize =
            self.tool_specs.iter().map(|tool| tool.description.len() + tool.input_schema.get().len()).sum();
        let tokens = self.estimate.tokens(fork.bytes() + self.system.len() + tools);
        if tokens + u64::from(self.completion_tokens()) > self.window {
            return Err(NoSummary::TooLong);
        }
        let mut was_refused = false;
        loop {
            let (system, segments) = ([self.system], fork.segments());
            let name = Some(self.conversation);
            let completion = self.complete(&system, self.tool_specs, &segments, &breakpoints, name, run).await?;
            let results = refusals(&completion);
            if results.is_empty() {
                return self.read(&completion, material, shown);
            }
            if was_refused {
                return Err(NoSummary::CallsTools);
            }
            was_refused = true;
            fork.push(Message { role: Role::Assistant, blocks: completion.blocks });
            fork.push(Message { role: Role::User, blocks: results });
        }
    }

    async fn sum_up_piece(&self, piece: &Piece, run: &mut Run) -> Result<Notes, NoSummary> {
        let messages = [Message::user(prompts::note_piece(&piece.text))];
        let completion = self.complete(&[prompts::NOTE_TAKER], &[], &[&messages], &[], None, run).await?;
        if !refusals(&completion).is_empty() {
            return Err(NoSummary::CallsTools);
        }
        self.read(&completion, piece.text.len(), &piece.shown)
    }

    fn read(&self, completion: &Completion, material: usize, shown: &Shown) -> Result<Notes, NoSummary> {
        let failed = |what: &str| Err(NoSummary::Failed(what.to_owned()));
        if completion.stop == Stop::Refusal {
            return failed("the model declined");
        }
        let text = completion.text();
        let cut = matches!(completion.stop, Stop::MaxTokens | Stop::ContextExceeded);
        if text.len() > material {
            return failed("the summary is larger than what it sums up");
        }
        let notes = notes::read(&text, cut, shown, self.at);
        if notes.drafts.is_empty() && !notes.says_nothing {
            return failed(if text.trim().is_empty() { "the summary is empty" } else { "the summary holds no facts" });
        }
        Ok(notes)
    }

    async fn complete(
        &self,
        system: &[&str],
        tools: &[ToolSpec],
        messages: &[&[Message]],
        breakpoints: &[Breakpoint],
        conversation: Option<&str>,
        run: &mut Run,
    ) -> Result<Completion, NoSummary> {
        if run.out_of_budget {
            return Err(NoSummary::Failed("no more may be spent today".to_owned()));
        }
        let max_tokens = self.completion_tokens();
        let purpose = Purpose::Summary;
        let request = ModelRequest { system, tools, messages, max_tokens, breakpoints, purpose, conversation };
        let control = CallControl { deadline: self.deadline, cancelled: self.cancel.child_token() };
        let completion = match self.model.complete(request, &control, &mut |_| {}).await {
            Ok(completion) => completion,
            Err(ModelError::ContextExceeded(_)) => {
                run.tally.requests += 1;
                return Err(NoSummary::TooLong);
            }
            Err(error) => return Err(NoSummary::Failed(error.to_string())),
        };
        let usage = completion.usage.bounded(self.window.saturating_mul(2), u64::from(max_tokens) * 4);
        let cost = self.prices.and_then(|prices| prices.cost(&usage));
        let tally = &mut run.tally;
        tally.usage = tally.usage.plus(&usage);
        tally.cost_usd += cost.unwrap_or(0.0);
        tally.unpriced |= cost.is_none();
        tally.requests += 1;
        // This one counts; whether another one may follow is another matter.
        run.out_of_budget = !(self.book)(&usage, cost);
        Ok(completion)
    }

    fn completion_tokens(&self) -> u32 {
        let fits = u32::try_from(self.window / COMPLETION_SHARE).unwrap_or(u32::MAX);
        self.completion_max.map_or(SUMMARY_TOKENS, |most| SUMMARY_TOKENS.min(most)).min(fits)
    }
}

/// A fact in the form in which it is to be noted.
fn noted(fact: &Fact) -> String {
    let paths: Vec<&str> = fact.sources.iter().map(|source| &*source.path).collect();
    format!("- [{}] {}", paths.join(", "), fact.text)
}

/// The results of tool calls that are not run; none where none was made.
fn refusals(completion: &Completion) -> Vec<Block> {
    let refusal = |block: &Block| match block {
        Block::ToolUse { id, .. } => {
            Some(Block::ToolResult { id: Arc::clone(id), text: prompts::NO_TOOLS_FOR_NOTES.into(), is_error: true })
        }
        _ => None,
    };
    completion.blocks.iter().filter_map(refusal).collect()
}
