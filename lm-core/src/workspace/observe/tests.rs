use super::*;
use std::sync::mpsc;

const LONG: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_millis(20);

type Done = Arc<Mutex<Vec<(String, ObservationKind)>>>;

/// A queue whose work goes on by one for each message, and what it has done.
fn gated() -> (Arc<Observations>, mpsc::Sender<()>, Done) {
    let (gate, turns) = mpsc::channel();
    let turns = Mutex::new(turns);
    let done = Done::default();
    let noted = Arc::clone(&done);
    let queue = Observations::new(
        move |observed, is_forgotten| {
            let _ = turns.lock().unwrap().recv();
            if is_forgotten(observed.path.split('/').nth(1).unwrap()) {
                return Outcome::Dropped(Reason::Forgotten);
            }
            noted.lock().unwrap().push((observed.path.clone(), observed.kind));
            Outcome::Taken
        },
        || (),
    );
    (queue, gate, done)
}

fn add(queue: &Observations, path: &str, kind: ObservationKind) {
    queue.add(path.to_owned(), kind, PathBuf::new(), Settings::default());
}

/// Waits until the first one is being taken in, so that others wait behind it.
fn wait_for_work(queue: &Observations) {
    let start = std::time::Instant::now();
    while queue.lock().in_work.is_none() {
        assert!(start.elapsed() < LONG, "nothing is taken in");
        thread::yield_now();
    }
}

#[test]
fn the_newest_kind_counts_but_an_edit_is_not_undone_by_a_read() {
    use ObservationKind::{Edited, Read, Removed};
    for (kinds, expected) in [
        (&[Read, Edited][..], Edited),
        (&[Edited, Read], Edited),
        (&[Edited, Removed], Removed),
        (&[Removed, Read], Read),
        (&[Edited, Removed, Read], Read),
        (&[Removed, Edited, Read], Edited),
    ] {
        let mut state = State::default();
        for &kind in kinds {
            let settings = Arc::default();
            state.put(Observed { path: "/w/a".into(), kind, cwd: PathBuf::new(), settings });
        }
        assert_eq!(state.waiting.len(), 1);
        assert_eq!(state.take_first().unwrap().1.observed.kind, expected, "{kinds:?}");
    }
}

#[tokio::test]
async fn a_file_waits_once_and_a_question_waits_for_what_came_before_it() {
    let (queue, gate, done) = gated();
    assert!(queue.settled(SHORT).await, "there is nothing to wait for");
    add(&queue, "/w/first", ObservationKind::Read);
    wait_for_work(&queue);
    for _ in 0..1_000 {
        add(&queue, "/w/a", ObservationKind::Edited);
        add(&queue, "/w/b", ObservationKind::Read);
    }
    assert_eq!(queue.status().waiting, 3);
    assert!(!queue.settled(SHORT).await, "nothing goes on yet");
    let settled = {
        let queue = Arc::clone(&queue);
        tokio::spawn(async move { queue.settled(LONG).await })
    };
    // Let it take its ticket before something later comes.
    tokio::task::yield_now().await;
    add(&queue, "/w/later", ObservationKind::Read);
    (0..3).for_each(|_| gate.send(()).unwrap());
    assert!(settled.await.unwrap());
    assert_eq!(done.lock().unwrap().len(), 3);
    assert!(!queue.is_idle());
    gate.send(()).unwrap();
    assert!(queue.settled(LONG).await);
    assert_eq!(
        done.lock().unwrap()[1..3],
        [("/w/a".to_owned(), ObservationKind::Edited), ("/w/b".to_owned(), ObservationKind::Read)]
    );
    assert_eq!(queue.status(), ObservationStatus { taken: 4, ..ObservationStatus::default() });
}

#[tokio::test]
async fn it_stays_bounded_and_says_what_fell_out() {
    let (queue, gate, done) = gated();
    add(&queue, "/w/first", ObservationKind::Read);
    wait_for_work(&queue);
    for number in 0..WAITING_MAX + 50 {
        add(&queue, &format!("/w/{number}"), ObservationKind::Read);
    }
    assert_eq!(queue.status().waiting, WAITING_MAX + 1);
    assert_eq!(queue.status().dropped.overflow, 50);
    assert_eq!(queue.lock().by_path.len(), WAITING_MAX);
    drop(gate);
    assert!(queue.settled(LONG).await);
    assert_eq!(done.lock().unwrap()[1].0, "/w/50");
    add(&queue, &"x".repeat(PATH_BYTES_MAX + 1), ObservationKind::Read);
    assert_eq!(queue.status().dropped.outside, 1);
}

#[tokio::test]
async fn what_is_forgotten_is_not_taken_in() {
    let (queue, gate, done) = gated();
    add(&queue, "/w/first", ObservationKind::Read);
    wait_for_work(&queue);
    for path in ["/w/a", "/w/again", "/v/b"] {
        add(&queue, path, ObservationKind::Read);
    }
    queue.forget(Some("w"), SHORT);
    add(&queue, "/w/again", ObservationKind::Read);
    drop(gate);
    assert!(queue.settled(LONG).await);
    let paths = || done.lock().unwrap().iter().map(|(path, _)| path.clone()).collect::<Vec<_>>();
    // The first one was being taken in already, and one was reported anew afterwards.
    assert_eq!(paths(), ["/w/again", "/v/b"]);
    assert_eq!(queue.status().dropped.forgotten, 2);
    add(&queue, "/w/a", ObservationKind::Read);
    assert!(queue.settled(LONG).await);
    assert_eq!(paths().len(), 3);
    assert!(queue.lock().forgotten.is_empty());
}

#[tokio::test]
async fn everything_that_waits_is_forgotten_at_once() {
    let (queue, gate, done) = gated();
    add(&queue, "/w/first", ObservationKind::Read);
    wait_for_work(&queue);
    add(&queue, "/w/a", ObservationKind::Read);
    add(&queue, "/v/b", ObservationKind::Read);
    queue.forget(None, SHORT);
    assert_eq!(queue.status().waiting, 1);
    drop(gate);
    assert!(queue.settled(LONG).await);
    assert_eq!(done.lock().unwrap().len(), 1);
    assert_eq!(queue.status().dropped.forgotten, 2);
}

#[tokio::test]
async fn a_failure_in_one_does_not_end_the_others() {
    let queue = Observations::new(
        |observed, _| {
            assert!(!observed.path.contains("bad"), "as a test of it");
            Outcome::Taken
        },
        || (),
    );
    add(&queue, "/w/bad", ObservationKind::Read);
    assert!(queue.settled(LONG).await);
    add(&queue, "/w/good", ObservationKind::Read);
    assert!(queue.settled(LONG).await);
    let status = queue.status();
    assert_eq!((status.taken, status.dropped.unreadable), (1, 1));
}

#[test]
fn nothing_is_queued_where_the_setting_is_off() {
    let (queue, _gate, _done) = gated();
    let settings = Settings { passive_ingestion: false, ..Settings::default() };
    queue.add("/w/a".into(), ObservationKind::Read, PathBuf::new(), settings);
    assert!(queue.is_idle());
    assert_eq!(queue.status().dropped.off, 1);
}

#[tokio::test]
async fn what_was_taken_in_is_saved_soon_and_once() {
    let (saved, saves) = mpsc::channel();
    let queue = Observations::new(|_, _| Outcome::Taken, move || saved.send(Instant::now()).unwrap());
    let start = Instant::now();
    for number in 0..100 {
        add(&queue, &format!("/w/{number}"), ObservationKind::Read);
    }
    assert!(queue.settled(LONG).await);
    assert!(queue.is_idle(), "nobody waits for the disk");
    let at = saves.recv_timeout(LONG).unwrap();
    assert!(at - start >= SAVED_WITHIN);
    assert!(saves.try_recv().is_err());
    // The next one finds the thread gone, or still there.
    add(&queue, "/w/more", ObservationKind::Read);
    saves.recv_timeout(LONG).unwrap();
}
