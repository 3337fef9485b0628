//! Tests of the namespace sync on a store in memory. A test writes to the store what other nodes and the
//! command line would write, and polls by hand, so that nothing depends on time.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Mutex;

use snowmint::inspect::Decoded;
use snowmint::{Clock as _, DatacenterId, ManualClock, WallClock};
use snowmint_cluster::namespace::{Fields, Logins, NamespaceRecord, ServedBy};
use snowmint_store::{Expected, Key, MemoryStore, Swap, Versioned};
use tokio::sync::oneshot;

use super::*;
use crate::mint::{InspectBy, Minted};
use crate::testing::TestSource;

const LAYOUT: Layout = Layout::TWITTER;
const POLL: Duration = Duration::from_secs(1);
const OTHER: &str = "time:41@1ms datacenter:3 worker:7 sequence:12 epoch:2020-01-01";

/// A node with its mint and its sync.
struct Node {
    mint: Arc<Mint>,
    sync: NamespaceSync,
    /// The layouts, rules and sequence starts of started id sources.
    started: Arc<Mutex<Vec<String>>>,
}

fn name(name: &str) -> NamespaceName {
    NamespaceName::new(name).unwrap()
}

fn defined(fields: Fields) -> Definition {
    fields.define(&LAYOUT).unwrap()
}

fn segment() -> Fields {
    Fields { scheme: "segment".to_owned(), ..Fields::default() }
}

async fn add(store: &MemoryStore, to: &str, fields: Fields) -> NamespaceRecord {
    registry::add(store, &name(to), &defined(fields), IfDropped::Resume).await.unwrap()
}

impl Node {
    async fn start(store: &MemoryStore, names: &[&str], file: Option<&Path>) -> Self {
        Self::on(Arc::new(store.clone()), names, file).await
    }

    async fn on(store: Arc<dyn Store>, names: &[&str], file: Option<&Path>) -> Self {
        Self::by(Arc::new(WallClock), store, names, file).await
    }

    async fn by(wall: SharedClock, store: Arc<dyn Store>, names: &[&str], file: Option<&Path>) -> Self {
        let flags = NamespaceFlags {
            hide_keys: None,
            logins: Logins::default(),
            names: names.iter().map(|it| name(it)).collect(),
            file: file.map(|path| path.to_owned().into()),
            layout: LAYOUT,
        };
        let config = flags.read().unwrap();
        config.pin(&*store).await.unwrap();
        let mint = Arc::new(Mint::new([], TestSource::new(LAYOUT), LAYOUT, DatacenterId(1)));
        let started = Arc::new(Mutex::new(Vec::new()));
        let starts = Arc::clone(&started);
        let options = SyncOptions {
            store,
            flags,
            rule: Rule::default(),
            sequence_start: Start::Zero,
            saved: None,
            open_source: Box::new(move |layout, rule, start| {
                starts.lock().unwrap().push(format!("{layout}, {rule}, {start}"));
                Ok(Box::new(TestSource::new(layout)) as _)
            }),
            poll: POLL,
            clock: Arc::new(WallClock),
            wall,
        };
        let mut sync = NamespaceSync::new(Arc::clone(&mint), config, options);
        sync.refresh().await.unwrap();
        sync.wait_until_opened().await;
        Self { mint, sync, started }
    }

    async fn look(&mut self) {
        self.sync.refresh().await.unwrap();
        self.sync.wait_until_opened().await;
    }

    /// Sends create requests for all names at the same time.
    async fn ask(&mut self, names: &[&str]) -> Vec<Result<(), MintError>> {
        let (sender, mut more) = mpsc::channel(CREATE_REQUESTS);
        let mut awaited = Vec::new();
        for asked in names {
            let (done, reply) = oneshot::channel();
            sender.try_send(CreateRequest { name: name(asked), done }).unwrap();
            awaited.push(reply);
        }
        while let Ok(first) = more.try_recv() {
            self.sync.create(first, &mut more).await;
        }
        let mut answers = Vec::new();
        for reply in awaited {
            answers.push(reply.await.unwrap());
        }
        answers
    }

    fn served(&self) -> Vec<String> {
        self.mint.table().namespaces().iter().map(|it| it.name().to_string()).collect()
    }

    async fn take(&self, from: &str, count: usize) -> Result<Vec<String>, MintError> {
        let mut connection = self.mint.connection_state();
        let (namespace, handles) = connection.find(from.as_bytes())?;
        let mut ids = namespace.take(handles, count).await?;
        let mut texts = Vec::new();
        while let Some(id) = ids.next() {
            let mut text = Vec::new();
            ids.write(id, &mut text);
            texts.push(String::from_utf8(text).unwrap());
        }
        Ok(texts)
    }
}

#[tokio::test]
async fn changes_in_the_store_are_followed() {
    let store = MemoryStore::new();
    let mut node = Node::start(&store, &["default"], None).await;
    assert_eq!(node.served(), ["default"]);
    add(&store, "orders", segment()).await;
    node.look().await;
    assert_eq!(node.take("orders", 3).await.unwrap(), ["1", "2", "3"]);

    let form = Fields { text: "A{number:3}".parse().ok(), ..segment() };
    registry::set(&store, &name("orders"), |_| Ok::<_, NamespaceError>(defined(form.clone()))).await.unwrap();
    node.look().await;
    // The numbers continue, and so does their count.
    assert_eq!(node.take("orders", 2).await.unwrap(), ["A004", "A005"]);

    registry::drop_namespace(&store, &name("orders"), 5).await.unwrap();
    node.look().await;
    let error = node.take("orders", 1).await.unwrap_err();
    assert!(error.to_string().contains("this server has default;"), "{error}");
    // Numbers in memory are released before the namespace is served again.
    while node.sync.releasing.join_next().await.is_some() {}
    add(&store, "orders", segment()).await;
    node.look().await;
    assert_eq!(node.take("orders", 1).await.unwrap(), ["6"]);
}

/// Goal: a change that needs new segments produces no duplicates. Method: sizes change between draws.
#[tokio::test]
async fn changed_sizes_make_no_number_twice() {
    let store = MemoryStore::new();
    let mut node = Node::start(&store, &[], None).await;
    add(&store, "n", segment()).await;
    let mut all = Vec::new();
    for size in [10, 50, 7, 1000] {
        let sized = Fields { size_min: Some(size), ..segment() };
        registry::set(&store, &name("n"), |_| Ok::<_, NamespaceError>(defined(sized.clone()))).await.unwrap();
        node.look().await;
        all.extend(node.take("n", 25).await.unwrap());
    }
    let mut unique = all.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), all.len(), "{all:?}");
}

/// Goal: a node remembers received numbers while a namespace changes, and while it is dropped and added
/// again. Method: the counter is set back before each change, as a restore does; numbers come from the
/// counter and from memory.
#[tokio::test]
async fn a_counter_that_goes_back_before_a_change_gives_no_number_twice() {
    for mode in ["direct", "cached"] {
        let store = MemoryStore::new();
        let mut node = Node::start(&store, &[], None).await;
        let of = |maximum| Fields { mode: mode.parse().ok(), maximum: Some(maximum), ..segment() };
        add(&store, "n", of(1_000_000)).await;
        node.look().await;
        let mut all = node.take("n", 100).await.unwrap();
        let key = Key::new("segments/n").unwrap();
        let early = store.load(&key).await.unwrap().unwrap().value;
        all.extend(node.take("n", 20_000).await.unwrap());
        let set_back = async || {
            let found = store.load(&key).await.unwrap().unwrap();
            let expected = Expected::Revision(found.revision);
            let swap = store.compare_and_set(&key, expected, &early).await.unwrap();
            assert!(matches!(swap, Swap::Done(_)));
        };
        let highest = |node: &Node| {
            let served = node.mint.table();
            served.namespaces()[0].segment_status().unwrap().highest
        };

        set_back().await;
        let changed = |_: &Definition| Ok::<_, NamespaceError>(defined(of(2_000_000)));
        registry::set(&store, &name("n"), changed).await.unwrap();
        node.look().await;
        assert!(highest(&node) >= 20_100, "{mode}: {}", highest(&node));
        all.extend(node.take("n", 100).await.unwrap());

        registry::drop_namespace(&store, &name("n"), 5).await.unwrap();
        node.look().await;
        while node.sync.releasing.join_next().await.is_some() {}
        set_back().await;
        add(&store, "n", of(3_000_000)).await;
        node.look().await;
        assert!(highest(&node) >= 20_200, "{mode}: {}", highest(&node));
        all.extend(node.take("n", 100).await.unwrap());

        let taken = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), taken, "{mode}");
    }
}

#[tokio::test]
async fn a_pinned_name_is_served_only_by_nodes_that_name_it() {
    let store = MemoryStore::new();
    let _other = Node::start(&store, &["theirs", "shared"], None).await;
    let mut node = Node::start(&store, &["mine", "shared"], None).await;
    node.look().await;
    assert_eq!(node.served(), ["mine", "shared"]);
}

#[tokio::test]
async fn other_layouts_and_rules_each_start_one_source_which_ends_with_its_last_namespace() {
    let store = MemoryStore::new();
    let mut node = Node::start(&store, &["default"], None).await;
    let of = |layout: &str, rule: Option<&str>| Fields {
        scheme: "snowflake".to_owned(),
        layout: layout.parse().ok(),
        rule: rule.and_then(|rule| rule.parse().ok()),
        ..Fields::default()
    };
    for (to, fields) in [
        ("a", of("twitter", None)),
        ("b", of(OTHER, None)),
        ("c", of(OTHER, None)),
        ("d", of("twitter", Some("reject"))),
        ("e", Fields { text: "F{base62:11}".parse().ok(), ..of(OTHER, None) }),
    ] {
        add(&store, to, fields).await;
    }
    node.look().await;
    assert_eq!(node.started.lock().unwrap().len(), 2, "{:?}", node.started);
    for from in ["default", "a", "b", "c", "d"] {
        assert!(node.take(from, 2).await.unwrap()[0].parse::<u64>().is_ok());
    }
    let text = node.take("e", 1).await.unwrap().remove(0);
    assert!(text.len() == 12 && text.starts_with('F'), "{text}");
    let inspection = node.mint.inspect(text.as_bytes(), InspectBy::Anything).unwrap();
    let likeliest = inspection.likeliest();
    assert!(
        matches!(likeliest.decoded, Decoded::Snowflake { layout, .. } if layout == OTHER.parse().unwrap())
    );
    assert_eq!((&likeliest.namespaces[..], likeliest.form), (&["e".to_owned()][..], "base62"));
    for dropped in ["b", "c", "e"] {
        registry::drop_namespace(&store, &name(dropped), 5).await.unwrap();
    }
    node.look().await;
    assert_eq!(node.sync.pools.len(), 1);
    assert!(node.mint.check_ready().is_ok());
}

/// Goal: ids in an earlier text form are still decoded. Method: a node that saw the change, and one that
/// starts after it.
#[tokio::test]
async fn texts_of_earlier_forms_are_inspected() {
    let store = MemoryStore::new();
    let mut node = Node::start(&store, &["default"], None).await;
    let fields =
        Fields { scheme: "segment".to_owned(), text: "A-{base58:6}".parse().ok(), ..Fields::default() };
    add(&store, "orders", fields.clone()).await;
    node.look().await;
    let changed = Fields { text: "B-{base58:8}".parse().ok(), ..fields }.define(&LAYOUT).unwrap();
    registry::set(&store, &name("orders"), |_| Ok::<_, NamespaceError>(changed.clone())).await.unwrap();
    node.look().await;
    let late = Node::start(&store, &["default"], None).await;
    for node in [node, late] {
        for text in ["A-11111z", "B-1111111z"] {
            let read = node.mint.inspect(text.as_bytes(), InspectBy::Namespace(b"orders")).unwrap();
            assert!(matches!(read.likeliest().decoded, Decoded::Number(id) if id.get() == 57), "{read:?}");
        }
        let error = node.mint.inspect(b"C-11111z", InspectBy::Namespace(b"orders")).unwrap_err();
        assert!(error.answer().ends_with("its ids are written as B-{base58:8}"), "{error}");
    }
}

/// Goal: the log warns of a layout that ends soon, and of no other. Method: layouts that end in half a year
/// and in decades.
#[tokio::test]
async fn the_log_warns_of_a_layout_that_ends_soon() {
    let store = MemoryStore::new();
    let mut node = Node::start(&store, &["default"], None).await;
    let half_a_year_ms = 15_778_476_000;
    let day_ms = 86_400_000;
    let epoch = WallClock.unix_ms() + half_a_year_ms + day_ms - (1000 << 28);
    let of = |layout: &str| Fields {
        scheme: "snowflake".to_owned(),
        layout: layout.parse().ok(),
        ..Fields::default()
    };
    add(&store, "old", of(&format!("time:28@1s datacenter:3 worker:21 sequence:11 epoch:{epoch}"))).await;
    add(&store, "new", of(OTHER)).await;
    node.look().await;
    node.look().await;
    let warned: Vec<_> = node.sync.warned.iter().collect();
    let is_of =
        |text: &String, name: &str| text.starts_with(&format!("namespace {name}: the layout ends on"));
    assert!(
        matches!(warned[..], [text] if is_of(text, "old") && text.contains(", in 0.5 years")),
        "{warned:?}"
    );
}

#[tokio::test]
async fn each_sequence_start_has_a_source_of_its_own_under_the_other_settings_of_the_service() {
    let store = MemoryStore::new();
    let mut node = Node::start(&store, &["default"], None).await;
    let of = |start: &str| Fields {
        scheme: "snowflake".to_owned(),
        sequence_start: start.parse().ok(),
        ..Fields::default()
    };
    for (to, start) in
        [("own", "zero"), ("a", "random"), ("b", "random"), ("c", "random(100)"), ("d", "rolling")]
    {
        add(&store, to, of(start)).await;
    }
    node.look().await;
    let started = node.started.lock().unwrap().clone();
    let expected =
        ["random", "random(100)", "rolling"].map(|it| format!("{LAYOUT}, {}, {it}", Rule::default()));
    assert_eq!(started, expected);
    registry::set(&store, &name("c"), |_| Ok::<_, NamespaceError>(defined(of("zero")))).await.unwrap();
    node.look().await;
    assert_eq!(node.sync.pools.len(), 2, "the source of random(100) ended");
}

/// Goal: dates are those of the namespace's time zone, in texts and in reset periods; a changed zone is
/// followed, and no text comes twice. Method: an injected wall clock at midnight in Shanghai.
#[tokio::test]
async fn dates_are_those_of_the_time_zone() {
    let store = MemoryStore::new();
    let wall = Arc::new(ManualClock::at_unix_ms(1_795_276_800_000 - 1));
    let mut node = Node::by(wall.clone(), Arc::new(store.clone()), &[], None).await;
    let daily = |zone: &str| Fields {
        reset: "daily".parse().ok(),
        text: "{date}-{number}".parse().ok(),
        time_zone: zone.parse().ok(),
        ..segment()
    };
    add(&store, "utc", daily("UTC")).await;
    add(&store, "shanghai", daily("Asia/Shanghai")).await;
    add(&store, "plain", Fields { reset: None, ..daily("Asia/Shanghai") }).await;
    add(&store, "flake", Fields { scheme: "snowflake".to_owned(), reset: None, ..daily("Etc/GMT-14") }).await;
    node.look().await;
    for (name, text) in [("utc", "20261121-1"), ("shanghai", "20261121-1"), ("plain", "20261121-1")] {
        assert_eq!(node.take(name, 1).await.unwrap(), [text], "{name}");
    }
    wall.advance_ms(1);
    for (name, text) in [("utc", "20261121-2"), ("shanghai", "20261122-1"), ("plain", "20261122-2")] {
        assert_eq!(node.take(name, 1).await.unwrap(), [text], "{name}");
    }
    let flake = node.take("flake", 1).await.unwrap().remove(0);
    let (date, id) = flake.split_once('-').unwrap();
    let made_unix_ms = LAYOUT.unix_ms(LAYOUT.split(id.parse().unwrap()).unwrap().timestamp);
    assert_eq!(date, snowmint_cluster::namespace::Day::of(made_unix_ms + 14 * 3_600_000).as_str());

    let mut seen = BTreeSet::from(["20261121-1".to_owned(), "20261122-1".to_owned()]);
    for (zone, date) in [("UTC", "20261121"), ("Asia/Tokyo", "20261122"), ("Asia/Shanghai", "20261122")] {
        let next = defined(daily(zone));
        registry::set(&store, &name("shanghai"), |_| Ok::<_, NamespaceError>(next.clone())).await.unwrap();
        registry::set(&store, &name("plain"), |before| {
            Ok::<_, NamespaceError>(Definition { time_zone: next.time_zone.clone(), ..before.clone() })
        })
        .await
        .unwrap();
        node.look().await;
        for text in node.take("shanghai", 5).await.unwrap() {
            assert!(text.starts_with(date) && seen.insert(text.clone()), "{text} in {zone}");
        }
        assert!(node.take("plain", 1).await.unwrap()[0].starts_with(date), "{zone}");
    }
}

/// Goal: a node without the rules of a time zone serves no date of another one. Method: a record of another
/// machine, whose zone is unknown here; then a change of a namespace that is served.
#[tokio::test]
async fn a_time_zone_without_rules_here_is_not_served() {
    let store = MemoryStore::new();
    let mut node = Node::start(&store, &[], None).await;
    let text = Fields { text: "{date}-{number}".parse().ok(), ..segment() };
    add(&store, "served", text.clone()).await;
    add(&store, "flake", Fields { scheme: "snowflake".to_owned(), ..text }).await;
    let record =
        br#"{"scheme":"segment","text":"{date}-{number}","time_zone":"Test/None","everywhere":true}"#;
    let key = Key::new("namespaces/foreign").unwrap();
    let _ = store.compare_and_set(&key, Expected::Absent, record).await.unwrap();
    node.look().await;
    assert!(node.take("served", 1).await.is_ok() && node.take("flake", 1).await.is_ok());
    for of in ["served", "flake"] {
        registry::set(&store, &name(of), |before| {
            Ok::<_, NamespaceError>(Definition { time_zone: "Test/None".parse().unwrap(), ..before.clone() })
        })
        .await
        .unwrap();
    }
    node.look().await;
    for of in ["foreign", "served", "flake"] {
        let error = node.take(of, 1).await.unwrap_err().to_string();
        assert!(error.contains("unknown time zone Test/None") && error.contains("tzdata"), "{of}: {error}");
    }
}

#[tokio::test]
async fn ids_of_wide_schemes_have_their_text() {
    let store = MemoryStore::new();
    let mut node = Node::start(&store, &[], None).await;
    let of = |scheme: &str| Fields { scheme: scheme.to_owned(), ..Fields::default() };
    for scheme in ["uuid7", "uuid4", "ulid", "objectid"] {
        add(&store, scheme, of(scheme)).await;
    }
    add(&store, "users", Fields { text: "usr_{id}".parse().ok(), ..of("ulid") }).await;
    node.look().await;
    for (from, len) in [("uuid7", 36), ("uuid4", 36), ("ulid", 26), ("objectid", 24), ("users", 30)] {
        let mut texts = node.take(from, 500).await.unwrap();
        assert!(texts.iter().all(|text| text.len() == len), "{from}: {}", texts[0]);
        assert!(from == "uuid4" || texts.is_sorted(), "{from} grows");
        texts.sort();
        texts.dedup();
        assert_eq!(texts.len(), 500, "{from}");
    }
}

/// Goal: the date in a text and the period of a number follow the wall clock, not the clock of ids. Method:
/// the wall clock steps by a day forward and back.
#[tokio::test(start_paused = true)]
async fn days_and_periods_follow_the_wall_clock() {
    const DAY_MS: u64 = 86_400_000;
    let wall = Arc::new(ManualClock::at_unix_ms(1_795_219_200_000));
    let store = MemoryStore::new();
    let dated = Fields { text: "{date}-{number}".parse().ok(), ..segment() };
    add(&store, "plain", dated.clone()).await;
    add(&store, "daily", Fields { reset: "daily".parse().ok(), ..dated }).await;
    let shown: SharedClock = Arc::<ManualClock>::clone(&wall);
    let node = Node::by(shown, Arc::new(store.clone()), &["default"], None).await;
    assert_eq!(node.take("plain", 1).await.unwrap(), ["20261121-1"]);
    assert_eq!(node.take("daily", 2).await.unwrap(), ["20261121-1", "20261121-2"]);
    wall.advance_ms(DAY_MS);
    assert_eq!(node.take("plain", 1).await.unwrap(), ["20261122-2"]);
    assert_eq!(node.take("daily", 1).await.unwrap(), ["20261122-1"]);
    wall.set_unix_ms(wall.unix_ms() - DAY_MS);
    assert_eq!(node.take("plain", 1).await.unwrap(), ["20261121-3"]);
    // A step back is noticed within a second.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let again = node.take("daily", 1).await.unwrap().remove(0);
    let number: u64 = again.strip_prefix("20261121-").unwrap().parse().unwrap();
    assert!(number > 2, "no number of that day comes twice: {again}");
}

#[tokio::test]
async fn only_plain_counters_are_incremented() {
    let store = MemoryStore::new();
    let mut node = Node::start(&store, &["default"], None).await;
    add(&store, "n", segment()).await;
    add(&store, "striped", Fields { stripe: "1/2".parse().ok(), ..segment() }).await;
    let daily = Fields { reset: "daily".parse().ok(), text: "{date}{number}".parse().ok(), ..segment() };
    add(&store, "daily", daily).await;
    add(&store, "keys", Fields { scheme: "uuid7".to_owned(), ..Fields::default() }).await;
    node.look().await;
    let mut connection = node.mint.connection_state();
    let count = |n| std::num::NonZeroU64::new(n).unwrap();
    let (namespace, _) = connection.find(b"n").unwrap();
    let run = namespace.take_run(count(10)).await.unwrap();
    assert_eq!((run.first(), run.last()), (1, 10));
    assert_eq!(namespace.take_run(count(1)).await.unwrap().last(), 11);
    for (from, words) in [
        ("default", "its scheme is not segment"),
        ("keys", "its scheme is not segment"),
        ("striped", "more than 1 apart"),
        ("daily", "restart with each period"),
    ] {
        let (namespace, _) = connection.find(from.as_bytes()).unwrap();
        let error = namespace.take_run(count(1)).await.unwrap_err();
        assert!(
            error.to_string().contains(words) && error.to_string().contains("ID.NEXT"),
            "{from}: {error}"
        );
    }
}

#[tokio::test]
async fn numbers_end_at_the_maximum_and_continue_after_it_is_raised() {
    let store = MemoryStore::new();
    let mut node = Node::start(&store, &[], None).await;
    let limited = Fields { maximum: Some(5), size_min: Some(2), ..segment() };
    add(&store, "n", limited.clone()).await;
    node.look().await;
    let error = node.take("n", 6).await.unwrap_err();
    assert!(matches!(error, MintError::TooFewLeft { left: 1..=5, maximum: 5, .. }), "{error}");
    assert_eq!(node.take("n", 5).await.unwrap(), ["1", "2", "3", "4", "5"], "the refusal has used up none");
    let error = node.take("n", 1).await.unwrap_err();
    assert!(matches!(error, MintError::NumbersEnded { maximum: 5, .. }), "{error}");
    assert!(node.mint.check_ready().is_ok(), "one full namespace does not take the others away");
    let raised = Fields { maximum: Some(100), ..limited };
    registry::set(&store, &name("n"), |_| Ok::<_, NamespaceError>(defined(raised.clone()))).await.unwrap();
    node.look().await;
    let next: u64 = node.take("n", 1).await.unwrap()[0].parse().unwrap();
    assert!(next > 5, "{next}");
}

#[tokio::test]
async fn requests_get_the_reason_why_a_namespace_is_unavailable() {
    let store = MemoryStore::new();
    let mut node = Node::start(&store, &["default"], None).await;
    let sources = vec!["mongodb://h/ids".parse().unwrap()];
    add(&store, "a", Fields { sources: Some(sources), ..segment() }).await;
    node.look().await;
    let error = node.take("a", 1).await.unwrap_err();
    assert!(error.to_string().contains("namespace a: unknown store `mongodb:`"), "{error}");
    assert!(node.take("default", 1).await.is_ok());
}

#[tokio::test]
async fn a_file_is_taken_as_a_whole_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("namespaces.toml");
    let write = |text: &str| std::fs::write(&path, text).unwrap();
    write("[namespaces.a]\nscheme = 'segment'\n[namespaces.b]\nscheme = 'uuid7'");
    let store = MemoryStore::new();
    let mut node = Node::start(&store, &["default"], Some(&path)).await;
    assert_eq!(node.served(), ["a", "b", "default"]);
    for bad in [
        "[namespaces.a]\nscheme = 'segment'\nstripe = '3/2'",
        "[namespaces.a0]\nscheme = 'segment'\n[namespaces.b]\nscheme = 'ulid'",
        "[namespaces.a]\nscheme = 'segment'\nstripe = '1/2'",
        "no toml",
    ] {
        write(bad);
        node.sync.reload().await;
        assert_eq!(node.served(), ["a", "b", "default"], "{bad}");
        let listed = registry::list(&store).await.unwrap();
        assert!(listed.iter().all(|(name, _)| name != "a0"), "nothing of a bad file is written");
    }
    write("[namespaces.a]\nscheme = 'segment'\ntext = 'N{number}'\n[namespaces.c]\nscheme = 'ulid'");
    node.sync.reload().await;
    assert_eq!(node.served(), ["a", "c", "default"]);
    assert_eq!(node.take("a", 1).await.unwrap(), ["N1"]);
    std::fs::remove_file(&path).unwrap();
    node.sync.reload().await;
    assert_eq!(node.served(), ["a", "c", "default"]);
}

#[tokio::test]
async fn unknown_names_become_namespaces_up_to_a_bound() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("namespaces.toml");
    let text = "[namespaces.seed]\nscheme = 'segment'\n[auto_create]\nlike = 'seed'\nat_most = 4\n";
    std::fs::write(&path, text).unwrap();
    let store = MemoryStore::new();
    let mut node = Node::start(&store, &["default"], Some(&path)).await;
    add(&store, "gone", segment()).await;
    registry::drop_namespace(&store, &name("gone"), 5).await.unwrap();
    let answers = node.ask(&["gone", "one", "two", "one", "three"]).await;
    assert!(matches!(answers[0], Err(MintError::UnknownNamespace { .. })), "{answers:?}");
    assert!(answers[1..4].iter().all(Result::is_ok), "{answers:?}");
    assert!(matches!(answers[4], Err(MintError::TooManyNamespaces { limit: 4, .. })), "{answers:?}");
    assert_eq!(node.served(), ["default", "one", "seed", "two"]);
    let answers = node.ask(&["one", "three"]).await;
    assert!(matches!(answers[..], [Ok(()), Err(MintError::TooManyNamespaces { .. })]), "{answers:?}");
    // Every node of the store serves the created namespaces.
    let other = Node::start(&store, &["default"], None).await;
    assert_eq!(other.served(), ["default", "one", "two"]);
}

/// Goal: concurrent create requests settle together, not one after the other. Method: a store that may lose 2
/// s, under paused time.
#[tokio::test(start_paused = true)]
async fn concurrent_create_requests_settle_together() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("namespaces.toml");
    std::fs::write(
        &path,
        "[namespaces.seed]\nscheme = 'uuid7'\n[auto_create]\nlike = 'seed'\nat_most = 100\n",
    )
    .unwrap();
    let store = Arc::new(Shaky { may_lose: Duration::from_secs(2), ..Shaky::default() });
    let mut node = Node::on(store, &["default"], Some(&path)).await;
    let names: Vec<String> = (0..40).map(|nth| format!("n{nth}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let began = tokio::time::Instant::now();
    assert!(node.ask(&names).await.iter().all(Result::is_ok));
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    assert_eq!(node.served().len(), 42);
}

/// Goal: a change during an outage keeps the numbers in memory in use until new ones are available. Method: a
/// store whose counters fail, and changes of everything that needs new segments.
#[tokio::test]
async fn a_change_in_an_outage_keeps_the_numbers_in_memory() {
    let store = Arc::new(Shaky::default());
    let records = store.records.clone();
    let mut node = Node::on(Arc::clone(&store) as Arc<dyn Store>, &[], None).await;
    let first = Fields { size_min: Some(100), ..segment() };
    add(&records, "n", first.clone()).await;
    node.look().await;
    let mut all = node.take("n", 10).await.unwrap();
    store.counters_away.store(true, std::sync::atomic::Ordering::Relaxed);
    for changed in [
        Fields { size_min: Some(500), ..first.clone() },
        Fields { size_min: Some(500), start: Some(7), text: "{number:4}".parse().ok(), ..first.clone() },
        Fields { size_min: Some(600), start: Some(7), text: "{number:4}".parse().ok(), ..first.clone() },
    ] {
        registry::set(&records, &name("n"), |_| Ok::<_, NamespaceError>(defined(changed.clone())))
            .await
            .unwrap();
        node.sync.refresh().await.unwrap();
        assert!(
            tokio::time::timeout(Duration::from_millis(50), node.sync.wait_until_opened()).await.is_err()
        );
        all.extend(node.take("n", 10).await.unwrap());
    }
    // The counters are back: the change applies.
    store.counters_away.store(false, std::sync::atomic::Ordering::Relaxed);
    node.sync.wait_until_opened().await;
    let last = node.take("n", 10).await.unwrap();
    assert!(last.iter().all(|number| number.len() == 4), "{last:?}");
    all.extend(last);
    let numbers: Vec<u64> = all.iter().map(|number| number.parse().unwrap()).collect();
    assert!(numbers.is_sorted_by(|one, next| one < next), "each once, and growing: {numbers:?}");
    store.counters_away.store(true, std::sync::atomic::Ordering::Relaxed);
    registry::drop_namespace(&records, &name("n"), 5).await.unwrap();
    node.sync.refresh().await.unwrap();
    assert!(
        !node.sync.pending.has(&name("n")) && node.take("n", 1).await.is_err(),
        "a dropped one ends at once"
    );
}

/// A store that may lose writes, and whose counters may fail.
#[derive(Debug, Default)]
struct Shaky {
    records: MemoryStore,
    may_lose: Duration,
    counters_away: std::sync::atomic::AtomicBool,
    /// When records were read.
    reads: Mutex<Vec<tokio::time::Instant>>,
}

#[async_trait::async_trait]
impl Store for Shaky {
    async fn load(&self, key: &Key) -> Result<Option<Versioned>, StoreError> {
        self.reads.lock().unwrap().push(tokio::time::Instant::now());
        self.records.load(key).await
    }

    async fn compare_and_set(&self, key: &Key, expected: Expected, value: &[u8]) -> Result<Swap, StoreError> {
        if key.as_str().starts_with("segments/")
            && self.counters_away.load(std::sync::atomic::Ordering::Relaxed)
        {
            let kind = snowmint_store::StoreErrorKind::Unavailable;
            return Err(StoreError::new(kind, "add", self.describe(), "away"));
        }
        self.records.compare_and_set(key, expected, value).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(Key, Versioned)>, StoreError> {
        self.records.list(prefix).await
    }

    fn may_lose(&self) -> Duration {
        self.may_lose
    }

    fn describe(&self) -> String {
        "shaky".to_owned()
    }
}

#[tokio::test]
async fn a_connection_sees_namespaces_that_are_added_later() {
    let store = MemoryStore::new();
    let mut node = Node::start(&store, &["default"], None).await;
    let mut connection = node.mint.connection_state();
    assert!(connection.find(b"a").is_err());
    add(&store, "a", segment()).await;
    node.look().await;
    let (namespace, handles) = connection.find(b"a").unwrap();
    let ids: Vec<_> = namespace.take(handles, 2).await.unwrap().collect();
    assert_eq!(ids, [Minted::Number(1), Minted::Number(2)]);
}

/// Goal: nodes that start together do not poll together, and none waits longer than the interval. Method: the
/// second poll of each of eight nodes.
#[tokio::test(start_paused = true)]
async fn nodes_that_start_together_poll_at_different_times() {
    let mut waits = HashSet::new();
    for _ in 0..8 {
        let store = Arc::new(Shaky::default());
        let node = Node::on(Arc::<Shaky>::clone(&store), &["default"], None).await;
        let began = tokio::time::Instant::now();
        let following = tokio::spawn(node.sync.run(Arc::default()));
        tokio::time::sleep(POLL + Duration::from_millis(1)).await;
        following.abort();
        let reads = store.reads.lock().unwrap();
        let mut later = reads.iter().map(|read| read.duration_since(began)).filter(|wait| !wait.is_zero());
        waits.insert(later.next().expect("a second poll within the interval"));
    }
    assert!(waits.len() > 1, "{waits:?}");
}

/// A store that can lose all its records.
#[derive(Debug, Default)]
struct Forgetful {
    store: Mutex<MemoryStore>,
    may_lose: Duration,
}

impl Forgetful {
    fn now(&self) -> MemoryStore {
        self.store.lock().unwrap().clone()
    }

    fn forget(&self) {
        *self.store.lock().unwrap() = MemoryStore::new();
    }

    /// Returns the record of a namespace.
    async fn record(&self, of: &str) -> NamespaceRecord {
        let listed = registry::list(&self.now()).await.unwrap();
        listed.into_iter().find(|(name, _)| name == of).unwrap().1.unwrap()
    }
}

#[async_trait::async_trait]
impl Store for Forgetful {
    async fn load(&self, key: &Key) -> Result<Option<Versioned>, StoreError> {
        self.now().load(key).await
    }

    async fn compare_and_set(&self, key: &Key, expected: Expected, value: &[u8]) -> Result<Swap, StoreError> {
        self.now().compare_and_set(key, expected, value).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(Key, Versioned)>, StoreError> {
        self.now().list(prefix).await
    }

    fn may_lose(&self) -> Duration {
        self.may_lose
    }

    fn describe(&self) -> String {
        "forgetful".to_owned()
    }
}

/// Goal: after a loss, the newest record that any node saw is written back, with all text forms and its
/// visibility. Method: three nodes: one does not name the namespace, and one has not polled since it changed;
/// the first to poll writes first.
#[tokio::test]
async fn a_lost_record_is_put_back_as_the_newest_that_any_node_saw() {
    for first_is_late in [false, true] {
        let store = Arc::new(Forgetful::default());
        let start = async |names: &[&str]| Node::on(Arc::clone(&store) as Arc<dyn Store>, names, None).await;
        let form = |text: &str| {
            let scheme = "snowflake".to_owned();
            defined(Fields { scheme, text: text.parse().ok(), ..Fields::default() })
        };
        let set = async |text: &str| {
            registry::set(&store.now(), &name("orders"), |_| Ok::<_, NamespaceError>(form(text)))
                .await
                .unwrap()
        };
        registry::add(&store.now(), &name("orders"), &form("{number}"), IfDropped::Refuse).await.unwrap();
        set("A{number}").await;
        let named = ["orders"];
        let (mut late, mut seen, mut unnamed) = (start(&named).await, start(&named).await, start(&[]).await);
        let newest = set("B{number}").await;
        for node in [&mut seen, &mut unnamed] {
            node.look().await;
            assert!(node.take("orders", 1).await.unwrap()[0].starts_with('B'));
        }
        store.forget();
        let order = if first_is_late { [&mut late, &mut seen] } else { [&mut seen, &mut late] };
        for node in order {
            node.look().await;
        }
        let record = store.record("orders").await;
        assert_eq!((&record.definition, record.served_by), (&newest.definition, newest.served_by));
        assert_eq!(record.earlier_texts, newest.earlier_texts);
        assert!(record.edition >= newest.edition);
        let mut other = start(&[]).await;
        for node in [&mut late, &mut seen, &mut unnamed, &mut other] {
            node.look().await;
            node.look().await;
            assert_eq!(node.mint.trouble(), None);
            assert!(node.take("orders", 1).await.unwrap()[0].starts_with('B'));
        }
        // A text form that conflicts with an earlier one is still rejected.
        let hex = |_: &Definition| Ok::<_, NamespaceError>(form("A{hex}"));
        let again = registry::set(&store.now(), &name("orders"), hex).await;
        assert!(matches!(again, Err(NamespaceError::Text(_))), "{again:?}");
    }
}

/// Goal: a record from before a start-over or a drop is overwritten, never followed. Method: the store is set
/// back under a node that saw the newer record.
#[tokio::test]
async fn a_record_that_goes_back_over_a_start_over_or_a_drop_is_not_followed() {
    let layout = |layout: &str| Fields {
        scheme: "snowflake".to_owned(),
        layout: layout.parse().ok(),
        ..Fields::default()
    };
    for (first, then) in [
        (segment(), Some(segment())),
        (layout(OTHER), Some(layout("twitter"))),
        (layout(OTHER), Some(segment())),
        (segment(), None),
    ] {
        let store = MemoryStore::new();
        let mut node = Node::start(&store, &[], None).await;
        add(&store, "n", first).await;
        let key = Key::new("namespaces/n").unwrap();
        let early = store.load(&key).await.unwrap().unwrap().value;
        node.look().await;
        node.take("n", 3).await.unwrap();
        registry::drop_namespace(&store, &name("n"), 5).await.unwrap();
        if let Some(then) = then.clone() {
            registry::add(&store, &name("n"), &defined(then), IfDropped::Restart).await.unwrap();
        }
        node.look().await;
        let served = node.served();
        let (_, record) = registry::list(&store).await.unwrap().remove(0);
        let set = async |key: &Key, value: &[u8]| {
            let found = store.load(key).await.unwrap().unwrap();
            let swap = store.compare_and_set(key, Expected::Revision(found.revision), value).await.unwrap();
            assert!(matches!(swap, Swap::Done(_)));
        };
        set(&key, &early).await;
        set(&Key::new("versions/namespaces").unwrap(), b"early").await;
        let numbers = if then.is_some() { node.take("n", 3).await.unwrap() } else { Vec::new() };
        for _ in 0..3 {
            node.look().await;
            assert_eq!(node.served(), served, "{then:?}");
        }
        assert_eq!(registry::list(&store).await.unwrap(), [("n".to_owned(), record)], "{then:?}");
        if then.is_some() {
            let next = node.take("n", 3).await.unwrap();
            assert!(next.iter().all(|number| !numbers.contains(number)), "{next:?} after {numbers:?}");
        }
    }
}

/// Goal: a reload does not mistake a record for lost. Method: a store that may lose writes, and a record that
/// changes during the reload.
#[tokio::test(start_paused = true)]
async fn a_reload_over_a_store_that_may_lose_writes_takes_no_record_for_lost() {
    let may_lose = Duration::from_secs(2);
    let store = Arc::new(Forgetful { may_lose, ..Forgetful::default() });
    add(&store.now(), "orders", segment()).await;
    let mut node = Node::on(Arc::clone(&store) as Arc<dyn Store>, &["default"], None).await;
    tokio::time::sleep(may_lose).await;
    node.look().await;
    assert_eq!(node.served(), ["default", "orders"]);
    let change = async {
        tokio::time::sleep(may_lose / 2).await;
        let larger = Fields { size_min: Some(5000), ..segment() };
        registry::set(&store.now(), &name("orders"), |_| Ok::<_, NamespaceError>(defined(larger.clone())))
            .await
            .unwrap();
    };
    tokio::join!(node.sync.reload(), change);
    node.look().await;
    assert_eq!(
        (node.served(), node.mint.trouble(), node.mint.records_lost()),
        (vec!["default".to_owned(), "orders".to_owned()], None, 0)
    );
}

/// Goal: a missing record is not a drop. The namespace stays served and is reported; one that this node names
/// is pinned again; another layout under the same name is never used. Method: a store that loses everything,
/// twice.
#[tokio::test]
async fn a_store_that_lost_its_records_takes_no_namespace_away() {
    let store = Arc::new(Forgetful::default());
    let mut node = Node::on(Arc::clone(&store) as Arc<dyn Store>, &["default"], None).await;
    add(&store.now(), "orders", Fields { text: "A{number}".parse().ok(), ..segment() }).await;
    add(&store.now(), "keys", Fields { scheme: "uuid7".to_owned(), ..Fields::default() }).await;
    node.look().await;
    assert_eq!((node.mint.trouble(), node.mint.records_lost()), (None, 0));
    store.forget();
    for _ in 0..3 {
        node.look().await;
        assert_eq!(node.served(), ["default", "keys", "orders"]);
        for name in node.served() {
            node.take(&name, 1).await.unwrap();
        }
    }
    let trouble = node.mint.trouble().unwrap();
    assert!(trouble.ends_with("lost the records of served namespaces: keys, orders"), "{trouble}");
    assert_eq!(node.mint.records_lost(), 3);
    let listed = registry::list(&store.now()).await.unwrap();
    let pinned = NamespaceRecord::new(Definition::snowflake(LAYOUT), ServedBy::ConfiguredNodes);
    assert_eq!(listed, [("default".to_owned(), Ok(pinned))], "pinned again, and nothing else");

    // A namespace that is added again unchanged continues; a dropped one ends.
    add(&store.now(), "keys", Fields { scheme: "uuid7".to_owned(), ..Fields::default() }).await;
    add(&store.now(), "orders", Fields { text: "A{number}".parse().ok(), ..segment() }).await;
    node.look().await;
    assert_eq!(node.mint.trouble(), None);
    registry::drop_namespace(&store.now(), &name("keys"), 5).await.unwrap();
    node.look().await;
    assert_eq!(node.served(), ["default", "orders"]);

    // Another node was first, with another layout: two layouts in one namespace could produce duplicates.
    store.forget();
    let other = Definition::snowflake(OTHER.parse().unwrap());
    registry::pin(&store.now(), &name("default"), &other).await.unwrap();
    for _ in 0..3 {
        node.look().await;
        let error = node.take("default", 1).await.unwrap_err().to_string();
        assert!(error.contains("lost or replaced") && error.contains("restart this node"), "{error}");
    }
    let trouble = node.mint.trouble().unwrap();
    assert!(
        trouble.ends_with("of served namespaces: orders; unavailable namespaces, see the log: default"),
        "{trouble}"
    );
    node.take("orders", 1).await.unwrap();
}

/// Goal: a store with too many namespaces takes none away that a node names or serves, and the node reports
/// which ones it leaves out. Method: later names that are earlier in the alphabet, written without a check of
/// the limit.
#[tokio::test]
async fn too_many_namespaces_take_no_other_away() {
    let store = MemoryStore::new();
    let record = NamespaceRecord::new(Definition::snowflake(LAYOUT), ServedBy::EveryNode);
    let write = async |to: &str| registry::put_back(&store, &name(to), &record).await.unwrap();
    for nth in 1..MAX_SERVED_NAMESPACES {
        write(&format!("n-{nth}")).await;
    }
    let mut node = Node::start(&store, &["zz-named"], None).await;
    write("z-served").await;
    node.look().await;
    let served = node.served();
    for name in ["z-served", "zz-named"] {
        assert!(served.iter().any(|it| it == name), "{name}");
    }
    assert_eq!((served.len(), node.mint.trouble()), (MAX_SERVED_NAMESPACES + 1, None));

    for late in ["a-late", "zzz-late"] {
        write(late).await;
    }
    for _ in 0..2 {
        node.look().await;
        assert!(node.served() == served);
    }
    let trouble = node.mint.trouble().unwrap();
    assert_eq!(trouble, "not served, because the store has more than 11000 namespaces: a-late, zzz-late");
    let warned: Vec<_> = node.sync.warned.iter().collect();
    assert!(matches!(warned[..], [text] if text.contains("not served: a-late, zzz-late; ")), "{warned:?}");
    // A node that names it serves it, though every node may.
    assert!(Node::start(&store, &["zzz-late"], None).await.served().contains(&"zzz-late".to_owned()));

    for (dropped, left_out) in [("n-1", Some("zzz-late")), ("n-2", None)] {
        registry::drop_namespace(&store, &name(dropped), 5).await.unwrap();
        node.look().await;
        let trouble = node.mint.trouble();
        assert_eq!(trouble.as_ref().and_then(|text| text.rsplit(": ").next()), left_out);
    }
    assert!(node.sync.warned.is_empty(), "{:?}", node.sync.warned);
}
