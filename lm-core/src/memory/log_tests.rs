use proptest::prelude::*;

use super::*;
use crate::memory::told::Standing;

fn rounds(question: &str, tool_rounds: usize, calls_per_round: usize, reasoning: bool) -> Vec<Message> {
    let mut messages = vec![Message::user(question)];
    for round in 0..tool_rounds {
        let ids: Vec<Arc<str>> = (0..calls_per_round).map(|call| format!("{question}-{round}-{call}").into()).collect();
        let mut said = Vec::new();
        if reasoning {
            said.push(Block::Reasoning { model: "m".into(), raw: "{}".into() });
        }
        said.extend(ids.iter().map(|id| Block::ToolUse {
            id: Arc::clone(id),
            name: "Read".into(),
            input: "{}".into(),
        }));
        let results =
            ids.into_iter().map(|id| Block::ToolResult { id, text: "text".into(), is_error: false }).collect();
        messages.push(Message { role: Role::Assistant, blocks: said });
        messages.push(Message { role: Role::User, blocks: results });
    }
    messages.push(Message::assistant(format!("answer to {question}")));
    messages
}

fn opening() -> Opening {
    Opening { messages: vec![Message::user("known"), Message::assistant("noted")], ..Opening::default() }
}

fn committed(log: &Log) -> Vec<Message> {
    log.fork().segments().concat()
}

fn answer(fork: &mut Fork, messages: Vec<Message>) {
    messages.into_iter().for_each(|message| fork.push(message));
}

#[test]
fn the_first_to_finish_commits_whole_and_the_later_one_is_kept_too() {
    let mut log = Log::new(Epoch(3), Opening::default());
    let (mut first, mut second) = (log.fork(), log.fork());
    answer(&mut first, rounds("one", 2, 2, true));
    answer(&mut second, rounds("two", 1, 1, true));
    assert_eq!(
        log.commit(second, Retain::All, Provenance::default()),
        Some(Commit { form: Form::Whole, dropped_blocks: 0 })
    );
    assert_eq!(
        log.commit(first, Retain::All, Provenance::default()),
        Some(Commit { form: Form::Rebased, dropped_blocks: 2 })
    );
    assert_eq!(log.exchanges().len(), 2);
    let reasoning = |exchange: &Exchange| {
        exchange
            .messages
            .iter()
            .flat_map(|message| &message.blocks)
            .any(|block| matches!(block, Block::Reasoning { .. }))
    };
    assert!(reasoning(&log.exchanges()[0]) && !reasoning(&log.exchanges()[1]));
}

#[test]
fn a_reduced_commit_keeps_question_and_answer_and_counts_the_rest() {
    let mut log = Log::default();
    let mut fork = log.fork();
    answer(&mut fork, rounds("q", 3, 2, false));
    assert_eq!(
        log.commit(fork, Retain::None, Provenance::default()),
        Some(Commit { form: Form::Reduced, dropped_blocks: 12 })
    );
    assert_eq!(committed(&log), rounds("q", 0, 0, false));
}

#[test]
fn half_a_conversation_is_never_committed() {
    let whole = rounds("q", 2, 2, false);
    for length in 0..whole.len() {
        let mut log = Log::default();
        let mut fork = log.fork();
        answer(&mut fork, whole[..length].to_vec());
        assert_eq!(log.commit(fork, Retain::All, Provenance::default()), None, "{length} messages");
        assert!(log.exchanges().is_empty());
    }
    let mut unanswered = whole;
    unanswered[2].blocks.pop();
    let mut log = Log::default();
    let mut fork = log.fork();
    answer(&mut fork, unanswered);
    assert_eq!(log.commit(fork, Retain::All, Provenance::default()), None);
}

#[test]
fn a_fork_of_an_earlier_epoch_is_rebased() {
    let mut fork = Log::new(Epoch(1), Opening::default()).fork();
    answer(&mut fork, rounds("q", 1, 1, true));
    let mut log = Log::new(Epoch(2), opening());
    assert_eq!(log.commit(fork, Retain::All, Provenance::default()).unwrap().form, Form::Rebased);
    assert_eq!(log.fork().end_of_previous_request(), None);
}

/// Rounds that were left out say nothing; a later word counts; an answer speaks for what it rests on.
#[test]
fn what_stands_in_the_log_is_what_was_told() {
    let text = |sha256: &str| Standing::Text(sha256.into());
    let mut log = Log::new(Epoch(0), Opening { said: vec![Said::shown("readme", "1")], ..opening() });
    let mut fork = log.fork();
    for (turn, message) in rounds("q", 1, 1, false).into_iter().enumerate() {
        fork.push(message);
        match turn {
            0 => fork.say(Said::notice("readme", text("2"))),
            2 => fork.say(Said::shown("read", "3")),
            _ => {}
        }
    }
    let mut whole = log.clone();
    let source = |path: &str, sha256: &str| Source { path: path.into(), sha256: sha256.into() };
    let provenance =
        Provenance { sources: vec![source("read", "3")], question: "q".into(), observations: 7, notes: 2, at: 9 };
    whole.commit(fork.clone(), Retain::All, provenance.clone()).unwrap();
    log.commit(fork, Retain::None, provenance).unwrap();
    for log in [whole, log.clone()] {
        let told = log.fork().told();
        assert!(told.of("readme").unwrap().agrees_with(&text("2")));
        assert!(told.of("read").unwrap().agrees_with(&text("3")) && !told.of("read").unwrap().agrees_with(&text("4")));
        assert_eq!(log.fork().observations_told(), 7);
    }
    assert_eq!(log.exchanges()[0].said.len(), 1);
    // The next epoch has the answer, and neither the opening nor what was read.
    let NextEpoch { log: next, left } = log.next_epoch(Opening::default(), 1_000, 1);
    assert!(left.is_empty());
    let told = next.fork().told();
    assert_eq!((told.of("readme"), told.of("read").is_some()), (None, true));
    assert_eq!(committed(&next)[0], Message::user("Question:\nq"));
    assert!(next.fork().holds("answer to q") && !next.fork().holds("answer to p"));
}

/// What was summarised leaves but for the newest answers; what was said since is kept with its rounds.
#[test]
fn an_epoch_takes_over_the_newest_answers_and_all_that_was_not_summarised() {
    let mut log = Log::new(Epoch(4), opening());
    for number in 0..4 {
        let mut fork = log.fork();
        answer(&mut fork, rounds(&format!("q{number}"), 1, 1, true));
        fork.say(Said::shown("read", "3"));
        let provenance = Provenance { question: format!("q{number}").into(), notes: number, ..Provenance::default() };
        log.commit(fork, Retain::All, provenance).unwrap();
    }
    let facts = vec![Noted { number: 7, sources: vec![Source { path: "noted".into(), sha256: "1".into() }] }];
    let room = bytes(&log.exchanges()[3].rebased().messages) + bytes(&log.exchanges()[2].alone());
    let next = log.next_epoch(Opening { facts, notes: 9, ..Opening::default() }, room, 3);
    let questions = |exchanges: &[Arc<Exchange>]| -> Vec<String> {
        exchanges.iter().map(|exchange| exchange.question.to_string()).collect()
    };
    assert_eq!(questions(next.log.exchanges()), ["q2", "q3"]);
    assert_eq!(questions(&next.left), ["q0", "q1"]);
    let [reduced, whole] = next.log.exchanges() else { panic!() };
    assert_eq!((reduced.messages.len(), reduced.said.len(), reduced.form), (2, 0, Form::Reduced));
    assert_eq!((whole.messages.len(), whole.said.len(), whole.form), (4, 1, Form::Rebased));
    assert_eq!(whole.answer(), "answer to q3");
    let fork = next.log.fork();
    assert_eq!((fork.notes_told(), fork.noted().len()), (9, 1));
    assert!(!fork.told().of("noted").unwrap().agrees_with(&Standing::Text("2".into())), "a change is told");
    let without = log.without(opening(), |exchange| exchange.mentions("answer to q1"));
    assert_eq!((questions(without.exchanges()).join(" "), without.epoch()), ("q0 q2 q3".into(), Epoch(5)));
}

#[derive(Clone, Debug)]
enum Step {
    Fork { tool_rounds: usize, calls: usize, reasoning: bool },
    Finish { which: usize, retain: Retain },
    Abandon { which: usize },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0_usize..4, 1_usize..12, any::<bool>()).prop_map(|(tool_rounds, calls, reasoning)| Step::Fork { tool_rounds, calls, reasoning }),
        3 => (any::<usize>(), any::<bool>()).prop_map(|(which, all)| Step::Finish { which, retain: if all { Retain::All } else { Retain::None } }),
        1 => any::<usize>().prop_map(|which| Step::Abandon { which }),
    ]
}

proptest! {
    /// Whatever runs side by side: the log only grows, each request is the log as of its fork and
    /// what the fork added, a whole commit stands as it was sent, and no answered question is lost.
    #[test]
    fn the_log_only_grows(steps in prop::collection::vec(step(), 1..40)) {
        let mut log = Log::new(Epoch(1), opening());
        let mut open: Vec<(Fork, Vec<Message>, Vec<Message>)> = Vec::new();
        let mut answered = 0;
        for (number, step) in steps.into_iter().enumerate() {
            let before = committed(&log);
            match step {
                Step::Fork { tool_rounds, calls, reasoning } => {
                    let mut fork = log.fork();
                    let own = rounds(&format!("q{number}"), tool_rounds, calls, reasoning);
                    for message in &own {
                        if message.role == Role::Assistant {
                            let request = fork.segments().concat();
                            prop_assert!(request.starts_with(&before));
                            prop_assert!(own.starts_with(&request[before.len()..]));
                            let end = fork.end().unwrap();
                            prop_assert_eq!(end.message + 1, request.len());
                            prop_assert_eq!(end.block + 1, request[end.message].blocks.len());
                            prop_assert!(fork.end_of_previous_request() < Some(end));
                        }
                        fork.push(message.clone());
                    }
                    open.push((fork, own, before.clone()));
                }
                Step::Finish { which, retain } if !open.is_empty() => {
                    let (fork, own, base) = open.swap_remove(which % open.len());
                    let written = log.fork().end_of_previous_request();
                    let commit = log.commit(fork, retain, Provenance::default()).unwrap();
                    answered += 1;
                    let after = committed(&log);
                    let untouched = base == before;
                    let nothing_to_drop = own.len() == 2;
                    let now_written = log.fork().end_of_previous_request();
                    prop_assert_eq!(now_written > written, untouched);
                    if let Some(end) = now_written {
                        // What was sent up to there stands there still.
                        let sent = if untouched { [base, own].concat() } else { before.clone() };
                        prop_assert_eq!(&after[..=end.message], &sent[..=end.message]);
                    }
                    prop_assert_eq!(commit.form == Form::Whole, untouched && (retain == Retain::All || nothing_to_drop));
                }
                Step::Abandon { which } if !open.is_empty() => {
                    open.swap_remove(which % open.len());
                }
                _ => {}
            }
            let after = committed(&log);
            prop_assert!(after.starts_with(&before));
            prop_assert!(is_complete(&after) || after.len() == 2);
            prop_assert_eq!(log.exchanges().len(), answered);
        }
    }
}
