//! A process that is killed while it writes.

use std::{
    io::Write as _,
    process::{Command, Stdio},
    time::Duration,
};

use super::*;

const PLACE: &str = "LIVE_MEMORY_TEST_KILLED_STORE";
/// How often the process is killed.
const KILLS: &str = "LIVE_MEMORY_TEST_KILLS";
const KILLS_DEFAULT: u32 = 200;
/// An epoch begins after so many exchanges, with as many of the newest as it carries over.
const EPOCH_LENGTH: u64 = 9;
const CARRIED: usize = 3;

/// The number that an exchange was made with.
fn number_of(exchange: &Exchange) -> usize {
    let Block::Text { text } = &exchange.messages[0].blocks[0] else { panic!("no question") };
    text.strip_prefix("question ").unwrap().parse().unwrap()
}

/// Writes for ever, and tells each exchange that was acknowledged.
fn write_until_killed(directory: &Path) {
    let Opened { mut store, epoch, set_aside, .. } = Store::open::<Value>(directory, Path::new("/project"), &key());
    let is_expected = |set_aside: &SetAside| set_aside.reason.contains("cut off") && set_aside.kept_as.is_none();
    assert!(set_aside.iter().all(is_expected), "{set_aside:?}");
    let (mut kept, mut epoch) = epoch.map_or((Vec::new(), Epoch(0)), |kept| (kept.exchanges, kept.epoch));
    let mut output = std::io::stdout();
    // What the test runner has begun to say stands on this line.
    writeln!(output).unwrap();
    if kept.is_empty() {
        store.begin(&header(0), &opening(), &[]).unwrap();
    }
    for number in kept.last().map_or(0, |last| number_of(last) + 1).. {
        if kept.len() as u64 >= EPOCH_LENGTH {
            kept.drain(..kept.len() - CARRIED);
            epoch = Epoch(epoch.0 + 1);
            let carried: Vec<Arc<Exchange>> = kept.iter().cloned().map(Arc::new).collect();
            store.begin(&header(epoch.0), &opening(), &carried).unwrap();
        }
        store.append(&exchange(number)).unwrap();
        kept.push(exchange(number));
        writeln!(output, "acknowledged {number}").unwrap();
        if number % 4 == 0 {
            store.save(&json!({ "number": number, "filling": "x".repeat(2000) })).unwrap();
            writeln!(output, "saved {number}").unwrap();
        }
    }
}

#[test]
fn a_process_killed_at_any_moment_loses_nothing_that_it_acknowledged() {
    if let Some(directory) = std::env::var_os(PLACE) {
        return write_until_killed(Path::new(&directory));
    }
    let kills = std::env::var(KILLS).map_or(KILLS_DEFAULT, |kills| kills.parse().unwrap());
    let place = Place::new();
    let (mut acknowledged, mut saved) = (None, None);
    let (mut torn, mut last_epoch) = (0, Epoch(0));
    for kill in 0..kills {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["workspace::store::tests::crash::a_process_killed_at_any_moment_loses_nothing_that_it_acknowledged"])
            .args(["--exact", "--nocapture"])
            .env(PLACE, &place.directory)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_micros(fastrand::u64(1_000..30_000)));
        child.kill().unwrap();
        let output = child.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!errors.contains("panicked"), "{errors}");
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let number = |word: &str| line.strip_prefix(word).and_then(|rest| rest.parse::<usize>().ok());
            acknowledged = number("acknowledged ").or(acknowledged);
            saved = number("saved ").or(saved);
        }

        let opened = place.open();
        for set_aside in &opened.set_aside {
            assert!(set_aside.reason.contains("cut off") && set_aside.kept_as.is_none(), "kill {kill}: {set_aside}");
            torn += 1;
        }
        if let Some(acknowledged) = acknowledged {
            let kept = opened.epoch.unwrap_or_else(|| panic!("kill {kill}: no epoch"));
            assert!(kept.epoch >= last_epoch, "kill {kill}");
            last_epoch = kept.epoch;
            let last = number_of(kept.exchanges.last().unwrap());
            assert!((acknowledged..=acknowledged + 1).contains(&last), "kill {kill}: {last}, {acknowledged}");
            let first = number_of(&kept.exchanges[0]);
            assert_eq!(kept.exchanges, exchanges(first..last + 1), "kill {kill}: without a gap");
            assert!(first == 0 || kept.exchanges.len() >= CARRIED, "kill {kill}: {first}..={last}");
        }
        if let Some(saved) = saved {
            let number = opened.snapshot.unwrap()["number"].as_u64().unwrap() as usize;
            assert!(number >= saved, "kill {kill}: {number}, {saved}");
        }
        assert!(place.names().len() <= 6, "kill {kill}: {:?}", place.names());
    }
    let acknowledged = acknowledged.expect("something was acknowledged between the kills");
    println!("{kills} kills, {} acknowledged, {torn} torn ends, {} epochs", acknowledged + 1, last_epoch.0 + 1);
}
