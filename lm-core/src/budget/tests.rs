use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    time::{Duration, UNIX_EPOCH},
};

use proptest::prelude::*;

use super::*;

/// 2026-12-01 at noon, UTC.
const NOON: u64 = 1_796_083_200 + 43_200;

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

fn usage(input: u64, cached: u64, output: u64) -> Usage {
    Usage { input: Some(input), cache_read: Some(cached), output: Some(output), ..Usage::default() }
}

struct Place {
    _directory: tempfile::TempDir,
    data: DataDirectory,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let data = DataDirectory::open_at(directory.path().join("data")).unwrap();
        Self { _directory: directory, data }
    }

    fn open(&self) -> Budget {
        Budget::open(&self.data, at(NOON))
    }

    fn file(&self) -> PathBuf {
        self.data.spending_file()
    }

    /// As if nothing had ever been kept.
    fn clear(&self) {
        let entries = fs::read_dir(self.data.root()).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.extension().is_some_and(|end| end == "jsonl")).for_each(|path| {
            fs::remove_file(path).unwrap();
        });
    }

    fn aside(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.data.root()).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.to_string_lossy().contains("spending-damaged")).collect()
    }
}

/// One request, as it is booked.
#[derive(Clone, Debug)]
struct Request {
    at: u64,
    workspace: usize,
    input: u64,
    cached: u64,
    output: u64,
    cost: Option<f64>,
}

impl Request {
    fn book(&self, budget: &Budget) {
        let workspace = format!("/home/me/{}", self.workspace);
        budget.book(&workspace, "m", &usage(self.input, self.cached, self.output), self.cost, at(self.at));
    }

    fn sum(&self) -> Sum {
        Sum::of(&usage(self.input, self.cached, self.output), self.cost)
    }
}

/// Three days around noon, in any order, as a clock that is set forth and back gives them.
fn requests(most: usize) -> impl Strategy<Value = Vec<Request>> {
    let request = (
        NOON - 86_400..NOON + 86_400,
        0..4_usize,
        0..100_000_u64,
        0..100_000_u64,
        0..5_000_u64,
        prop_oneof![Just(None), (0.0..2.0).prop_map(Some)],
    );
    prop::collection::vec(request, 0..most).prop_map(|requests| {
        let request =
            |(at, workspace, input, cached, output, cost)| Request { at, workspace, input, cached, output, cost };
        requests.into_iter().map(request).collect()
    })
}

fn total<'a>(requests: impl IntoIterator<Item = &'a Request>) -> Sum {
    let mut total = Sum::default();
    requests.into_iter().for_each(|request| total += request.sum());
    total
}

fn assert_holds(budget: &Budget, requests: &[Request]) {
    for day in [NOON - 86_400, NOON, NOON + 86_400] {
        let spent = budget.spent(at(day));
        let of_day = requests.iter().filter(|request| Day::of(at(request.at)) == spent.day);
        assert_eq!(spent.today, total(of_day));
        assert_eq!(spent.total, total(requests));
        assert_eq!(spent.warnings(), Vec::<String>::new());
    }
    let by_workspace: BTreeMap<_, _> = budget.spent(at(NOON)).by_workspace.into_iter().collect();
    let mut expected = BTreeMap::<String, Sum>::new();
    for request in requests {
        *expected.entry(format!("/home/me/{}", request.workspace)).or_default() += request.sum();
    }
    assert_eq!(by_workspace, expected);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn nothing_is_lost_in_any_order_over_any_restart(requests in requests(24), restarts in prop::collection::vec(any::<bool>(), 24)) {
        let place = Place::new();
        let mut budget = place.open();
        for (request, restart) in requests.iter().zip(restarts) {
            request.book(&budget);
            if restart {
                budget = place.open();
            }
        }
        assert_holds(&budget, &requests);
        let other = Place::new();
        let reversed = other.open();
        requests.iter().rev().for_each(|request| request.book(&reversed));
        assert_holds(&reversed, &requests);
    }

    #[test]
    fn what_is_booked_at_once_from_many_threads_is_all_there(requests in requests(40)) {
        let place = Place::new();
        let budget = place.open();
        std::thread::scope(|scope| {
            for part in requests.chunks(10) {
                scope.spawn(|| part.iter().for_each(|request| request.book(&budget)));
            }
        });
        assert_holds(&budget, &requests);
        assert_holds(&place.open(), &requests);
    }
}

fn some_requests(count: u64) -> Vec<Request> {
    let request = |index: u64| Request {
        at: NOON + index,
        workspace: usize::try_from(index % 3).unwrap(),
        input: 100 + index,
        cached: 1_000,
        output: 10,
        cost: (index != 1).then_some(0.25),
    };
    (0..count).map(request).collect()
}

/// A crash may cut the file anywhere while a line is written, and a broken disk may cut it anywhere.
#[test]
fn a_file_that_is_cut_at_any_byte_keeps_what_was_whole_and_says_so() {
    let place = Place::new();
    let before = some_requests(2);
    let budget = place.open();
    before.iter().for_each(|request| request.book(&budget));
    // The first booking made the snapshot; a restart after the second goes on with both.
    let later = some_requests(5);
    later[2..].iter().for_each(|request| request.book(&budget));
    drop(budget);
    let whole = fs::read(place.file()).unwrap();
    let end_of_snapshot = whole.windows(15).position(|window| window == b"{\"kind\":\"end\"}\n").unwrap() + 15;
    for cut in 0..=whole.len() {
        place.clear();
        fs::write(place.file(), &whole[..cut]).unwrap();
        let budget = place.open();
        let spent = budget.spent(at(NOON));
        if cut < end_of_snapshot - 1 {
            assert!(spent.damaged == Some(spent.day) && !spent.warnings().is_empty(), "cut at {cut}");
            assert_eq!(fs::read(&place.aside()[0]).unwrap(), &whole[..cut], "set aside as it was");
            assert!(spent.total.requests <= 1, "cut at {cut}");
        } else {
            let lines = whole[end_of_snapshot.min(cut)..cut].split_inclusive(|byte| *byte == b'\n');
            let complete = lines.clone().filter(|line| serde_json::from_slice::<serde_json::Value>(line).is_ok());
            let complete = complete.count();
            assert_eq!(spent.total, total(&later[..1 + complete]), "cut at {cut}");
            assert_eq!(spent.warnings().is_empty(), lines.count() == complete, "cut at {cut}");
            assert_eq!((spent.damaged, place.aside()), (None, vec![]), "cut at {cut}");
        }
        // It goes on from there, and another start finds all of it whole.
        let next = &later[4];
        next.book(&budget);
        let mut expected = spent.total;
        expected += next.sum();
        drop(budget);
        let again = place.open().spent(at(NOON));
        assert_eq!((again.total, again.damaged, again.problem), (expected, spent.damaged, None), "cut at {cut}");
    }
}

#[test]
fn what_cannot_be_read_is_set_aside_and_remembered_as_lost() {
    let place = Place::new();
    for (number, content) in ["not a record", "{\"kind\":\"header\",\"version\":9}\n", "\0\0\0\0"].iter().enumerate() {
        fs::write(place.file(), content).unwrap();
        let budget = place.open();
        let warnings = budget.spent(at(NOON)).warnings().join("\n");
        assert!(warnings.contains("lost today") && warnings.contains("spending-damaged"), "{warnings}");
        assert_eq!(place.aside().len(), number + 1);
        // It is still said the day after, and by the next daemon.
        drop(budget);
        let later = place.open().spent(at(NOON + 86_400)).warnings().join("\n");
        assert!(later.contains("before 2026-12-01 were lost"), "{later}");
    }
    // No more of them than that.
    fs::write(place.file(), "again").unwrap();
    place.open();
    assert_eq!(place.aside().len(), 3);
    // A line in the middle, with what stands around it kept.
    let place = Place::new();
    let budget = place.open();
    some_requests(3).iter().for_each(|request| request.book(&budget));
    let text = fs::read_to_string(place.file()).unwrap().replacen("\"kind\":\"booked\"", "\"kind\":\"b", 1);
    fs::write(place.file(), text).unwrap();
    let spent = place.open().spent(at(NOON));
    assert_eq!((spent.total.requests, spent.damaged), (2, Some(spent.day)));
}

#[cfg(unix)]
#[test]
fn the_file_is_private() {
    use std::os::unix::fs::PermissionsExt;

    let place = Place::new();
    assert!(!place.file().exists(), "nothing is written before something is spent");
    some_requests(1)[0].book(&place.open());
    assert_eq!(fs::metadata(place.file()).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn what_a_crash_left_beside_the_file_is_removed() {
    let place = Place::new();
    let (left, other) = (place.data.root().join(".spending-x1.new"), place.data.root().join(".config-x1.new"));
    [&left, &other].iter().for_each(|path| fs::write(path, "half").unwrap());
    place.open();
    assert_eq!((left.exists(), other.exists()), (false, true));
}

#[test]
fn what_cannot_be_written_is_counted_said_and_written_later() {
    let place = Place::new();
    let budget = place.open();
    // A directory that is not empty is in the way, as nothing is put in its place.
    fs::create_dir_all(place.file().join("in the way")).unwrap();
    let requests = some_requests(3);
    requests[..2].iter().for_each(|request| request.book(&budget));
    budget.store.settle();
    let spent = budget.spent(at(NOON));
    assert_eq!(spent.total, total(&requests[..2]));
    assert!(spent.problem.is_some_and(|problem| problem.contains("a restart forgets it")));
    fs::remove_dir_all(place.file()).unwrap();
    requests[2].book(&budget);
    budget.store.settle();
    assert_holds(&budget, &requests);
    assert_holds(&place.open(), &requests);
}

#[test]
fn the_file_stays_small_and_keeps_the_sums() {
    let place = Place::new();
    let budget = place.open();
    let requests: Vec<_> = (0..8).flat_map(|_| some_requests(1_000)).collect();
    requests.iter().for_each(|request| request.book(&budget));
    budget.store.settle();
    let size = fs::metadata(place.file()).unwrap().len();
    assert!(size < 1 << 20, "{size} bytes for {} requests", requests.len());
    assert_holds(&place.open(), &requests);
}

#[test]
fn old_days_and_many_workspaces_are_kept_in_sum() {
    let place = Place::new();
    let budget = place.open();
    let of_day = |day: u64| at(NOON + day * 86_400);
    // Once the clock was wrong for a long time.
    for day in 9_000..9_100 {
        budget.book("/wrong", "m", &usage(1, 0, 0), Some(1.0), of_day(day));
    }
    for day in 0..400 {
        budget.book(&format!("/home/me/{day}"), "m", &usage(1, 0, 0), Some(1.0), of_day(day));
        budget.book(&format!("/home/me/{day}"), "m", &usage(1, 0, 0), Some(1.0), of_day(day));
        assert_eq!(budget.spent(of_day(day)).today.usd(), 2.0, "today is never pushed out");
    }
    for budget in [&budget, &place.open()] {
        let spent = budget.spent(of_day(399));
        assert_eq!((spent.total.requests, spent.today.requests), (900, 2));
        assert_eq!(spent.by_workspace.len(), 255);
        assert_eq!(
            spent.by_workspace.iter().map(|(_, sum)| sum.requests).sum::<u64>() + spent.other_workspaces.requests,
            900
        );
        assert!(spent.by_workspace.iter().any(|(name, _)| name == "/home/me/399"));
    }
    let days = fs::read_to_string(place.file()).unwrap().matches("\"kind\":\"day\"").count();
    assert!(days <= 62, "{days}");
}

#[test]
fn a_limit_says_what_was_spent_when_it_resets_and_how_to_raise_it() {
    let place = Place::new();
    let budget = place.open();
    let none = Limits::default();
    let dollars = Limits { usd: 5.0, tokens: 0 };
    let tokens = Limits { usd: 0.0, tokens: 2_000 };
    assert_eq!(budget.check(&dollars, at(NOON)), Ok(()));
    budget.book("/w", "m", &usage(1_000, 500, 300), Some(4.999), at(NOON));
    assert_eq!((budget.check(&dollars, at(NOON)), budget.check(&tokens, at(NOON))), (Ok(()), Ok(())));
    budget.book("/w", "m", &usage(100, 50, 50), Some(0.011), at(NOON));
    budget.book("/w", "unknown", &Usage::default(), None, at(NOON));
    let said = budget.check(&dollars, at(NOON + 1)).unwrap_err().to_string();
    assert_eq!(
        said,
        "the daily budget of $5.00 is used up: $5.01 spent today (UTC) in 3 requests (1 of them of unknown price, not \
         counted in dollars); it resets at 2026-12-02 00:00 UTC (in 12 h 0 min), or raise it with `lm-shim config set \
         daily_budget_usd=10`"
    );
    let said = budget.check(&tokens, at(NOON + 43_195)).unwrap_err().to_string();
    assert!(said.contains("2000 tokens is used up: 2000 tokens today") && said.contains("(in 1 min)"), "{said}");
    assert!(said.contains("daily_budget_tokens=4000"), "{said}");
    assert_eq!(budget.check(&none, at(NOON)), Ok(()));
    // The next day is another one, and a clock that goes back finds the day as it was.
    assert_eq!(budget.check(&dollars, at(NOON + 43_200)), Ok(()));
    assert!(budget.check(&dollars, at(NOON)).is_err());
    assert_eq!(budget.spent(at(NOON)).unpriced_models, ["unknown"]);
    // A restart changes nothing.
    assert!(place.open().check(&dollars, at(NOON)).is_err());
}

#[test]
fn an_unknown_price_is_said_where_dollars_are_the_limit() {
    let dollars = Limits { usd: 5.0, tokens: 0 };
    let said = price_note("qwen3:8b", false, &dollars).unwrap();
    assert!(said.contains("qwen3:8b is not known") && said.contains("$5.00") && said.contains("price_input"), "{said}");
    assert_eq!(price_note("qwen3:8b", true, &dollars), None);
    assert_eq!(price_note("qwen3:8b", false, &Limits { usd: 0.0, tokens: 9 }), None);
    // What is no amount of money is not known either.
    for cost in [f64::NAN, f64::INFINITY, -1.0] {
        assert_eq!(Sum::of(&Usage::default(), Some(cost)).unpriced_requests, 1);
    }
}

#[test]
fn what_is_under_way_is_reserved_and_given_back() {
    let place = Place::new();
    let budget = place.open();
    let limits = Limits { usd: 0.01, tokens: 0 };
    let asked = usage(50_000, 0, 1_000);
    let reserve = |cost| budget.reserve(&limits, &asked, Some(cost), at(NOON));
    let first = reserve(0.006).unwrap();
    let second = reserve(0.006).unwrap();
    assert!(reserve(0.006).is_err(), "two of them use it up");
    assert!(budget.check(&limits, at(NOON)).is_err());
    drop(second);
    let ending = budget.reserve_anyway(&asked, Some(1.0));
    assert!(reserve(0.001).is_err());
    drop((first, ending));
    assert!(reserve(0.001).is_ok());
    assert_eq!(budget.spent(at(NOON)).today.requests, 0, "what is reserved is not spent");
}
