//! Tests of the registry on a store in memory.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use async_trait::async_trait;
use snowmint::Layout;
use snowmint_store::{Key, MemoryStore, Visibility};

use super::*;
use crate::namespace::Fields;

fn name() -> NamespaceName {
    NamespaceName::new("orders").unwrap()
}

fn defined(toml: &str) -> Definition {
    toml::from_str::<Fields>(toml).unwrap().define(&Layout::TWITTER).unwrap()
}

#[tokio::test]
async fn a_dropped_namespace_resumes_or_restarts_only_on_request() {
    let store = MemoryStore::new();
    let (segment, other) = (defined("scheme = 'segment'"), defined("scheme = 'segment'\nstripe = '1/2'"));
    add(&store, &name(), &segment, IfDropped::Resume).await.unwrap();
    let twice = add(&store, &name(), &segment, IfDropped::Restart).await.unwrap_err();
    assert!(matches!(twice, NamespaceError::Exists { .. }), "{twice}");
    drop_namespace(&store, &name(), 1_795_219_200_000).await.unwrap();
    for error in [
        pin(&store, &name(), &segment).await.unwrap_err(),
        define(&store, &name(), &segment).await.unwrap_err(),
        drop_namespace(&store, &name(), 5).await.unwrap_err(),
    ] {
        assert!(error.to_string().contains("was dropped on 2026-11-21T00:00:00.000Z"), "{error}");
    }
    let refused = add(&store, &name(), &other, IfDropped::Resume).await.unwrap_err();
    assert!(matches!(refused, NamespaceError::Mismatch(_)), "{refused}");
    let again = add(&store, &name(), &segment, IfDropped::Resume).await.unwrap();
    assert_eq!(again.definition, segment);
    drop_namespace(&store, &name(), 5).await.unwrap();
    let over = add(&store, &name(), &other, IfDropped::Restart).await.unwrap();
    assert_eq!(over.last_series(), 2);
    // The series stays with the namespace from then on.
    drop_namespace(&store, &name(), 5).await.unwrap();
    let again = add(&store, &name(), &other, IfDropped::Resume).await.unwrap();
    assert_eq!(again.last_series(), 2);
}

/// Goal: nodes with files cannot be in different time zones; an operator changes the zone for all of them.
/// Method: pins and definitions of two zones, and `set` between them.
#[tokio::test]
async fn a_time_zone_changes_for_all_nodes_or_for_none() {
    let store = MemoryStore::new();
    let daily = "scheme = 'segment'\nreset = 'daily'\ntext = '{date}-{number}'\n";
    let (utc, shanghai) = (defined(daily), defined(&format!("{daily}time_zone = 'Asia/Shanghai'")));
    pin(&store, &name(), &utc).await.unwrap();
    for refused in [pin(&store, &name(), &shanghai).await, define(&store, &name(), &shanghai).await] {
        assert!(refused.unwrap_err().to_string().contains("at the same time"));
    }
    let record = set(&store, &name(), |_| Ok::<_, NamespaceError>(shanghai.clone())).await.unwrap();
    assert_eq!(record.definition, shanghai);
    pin(&store, &name(), &shanghai).await.unwrap();
    assert!(pin(&store, &name(), &utc).await.is_err());
    let other = defined(&format!("{daily}time_zone = 'Asia/Tokyo'\nstripe = '1/2'"));
    let refused = set(&store, &name(), |_| Ok::<_, NamespaceError>(other.clone())).await.unwrap_err();
    assert!(refused.to_string().contains("another stripe"), "{refused}");
}

/// Goal: a namespace that started over never returns to an earlier series, even if it had no numbers in
/// between: its counter is still in the store.
#[tokio::test]
async fn a_namespace_that_had_no_numbers_for_a_while_begins_a_new_series() {
    let store = MemoryStore::new();
    let (segment, keys) = (defined("scheme = 'segment'"), defined("scheme = 'uuid7'"));
    add(&store, &name(), &segment, IfDropped::Resume).await.unwrap();
    for (next, series) in [(&keys, 1), (&keys, 1), (&segment, 2), (&segment, 3), (&keys, 3), (&segment, 4)] {
        drop_namespace(&store, &name(), 5).await.unwrap();
        let over = add(&store, &name(), next, IfDropped::Restart).await.unwrap();
        assert_eq!(over.last_series(), series);
    }
}

#[tokio::test]
async fn a_pin_keeps_what_may_change_and_a_definition_changes_it() {
    let store = MemoryStore::new();
    let (plain, form) = (defined("scheme = 'segment'"), defined("scheme = 'segment'\ntext = 'A{number}'"));
    pin(&store, &name(), &form).await.unwrap();
    assert_eq!(pin(&store, &name(), &plain).await.unwrap().definition, form);
    assert_eq!(define(&store, &name(), &plain).await.unwrap().definition, plain);
    let listed = list(&store).await.unwrap();
    let earlier_texts = vec![form.text];
    let record = NamespaceRecord {
        earlier_texts,
        edition: 2,
        ..NamespaceRecord::new(plain, ServedBy::ConfiguredNodes)
    };
    assert_eq!(listed, [("orders".to_owned(), Ok(record))]);
}

#[tokio::test]
async fn a_change_is_checked_against_what_is_there() {
    let store = MemoryStore::new();
    let to = |toml: &'static str| move |_: &Definition| Ok::<_, NamespaceError>(defined(toml));
    let error = set(&store, &name(), to("scheme = 'segment'")).await.unwrap_err();
    assert!(matches!(error, NamespaceError::Missing { .. }), "{error}");
    add(&store, &name(), &defined("scheme = 'segment'"), IfDropped::Resume).await.unwrap();
    let error = set(&store, &name(), to("scheme = 'uuid7'")).await.unwrap_err();
    assert!(matches!(error, NamespaceError::Mismatch(_)), "{error}");
    let set = set(&store, &name(), to("scheme = 'segment'\nmaximum = 99")).await.unwrap();
    assert_eq!(set.definition, defined("scheme = 'segment'\nmaximum = 99"));
    assert_eq!(set.served_by, ServedBy::EveryNode);
}

/// Goal: nobody adds a namespace for every node beyond the limit, not even one that was dropped; those of
/// single nodes are not limited. Method: a store that is filled without a check.
#[tokio::test]
async fn a_store_has_a_limit_of_namespaces_that_every_node_serves() {
    let store = MemoryStore::new();
    let definition = defined("scheme = 'uuid7'");
    let named = |text: &str| NamespaceName::new(text).unwrap();
    let write = async |text: &str, served_by| {
        put_back(&store, &named(text), &NamespaceRecord::new(definition.clone(), served_by)).await.unwrap()
    };
    for nth in 1..MAX_NAMESPACES {
        write(&format!("n-{nth}"), ServedBy::EveryNode).await;
    }
    write("gone", ServedBy::EveryNode).await;
    drop_namespace(&store, &named("gone"), 5).await.unwrap();
    write("of-some", ServedBy::ConfiguredNodes).await;
    let add = async |text: &str, if_dropped| add(&store, &named(text), &definition, if_dropped).await;
    add("last", IfDropped::Refuse).await.unwrap();
    let full = add("more", IfDropped::Refuse).await.unwrap_err();
    assert!(matches!(full, NamespaceError::TooMany { found: MAX_NAMESPACES, .. }), "{full}");
    for words in ["namespace more not added", "10000 namespaces in memory:", "limit is 10000", "ns drop"] {
        assert!(full.to_string().contains(words), "{full}");
    }
    for if_dropped in [IfDropped::Resume, IfDropped::Restart] {
        let full = add("gone", if_dropped).await.unwrap_err();
        assert!(matches!(full, NamespaceError::TooMany { .. }), "{if_dropped:?}: {full}");
    }
    let dropped = add("gone", IfDropped::Refuse).await.unwrap_err();
    assert!(matches!(dropped, NamespaceError::Dropped { .. }), "{dropped}");
    let exists = add("last", IfDropped::Resume).await.unwrap_err();
    assert!(matches!(exists, NamespaceError::Exists { .. }), "{exists}");
    pin(&store, &named("of-one"), &definition).await.unwrap();
    drop_namespace(&store, &named("last"), 5).await.unwrap();
    add("gone", IfDropped::Resume).await.unwrap();
    let full = add("last", IfDropped::Resume).await.unwrap_err();
    assert!(matches!(full, NamespaceError::TooMany { .. }), "{full}");
}

/// Goal: over a store that may lose its newest writes, a definition counts once it has settled. Method: a
/// store in memory that claims to lose writes, under paused time.
#[tokio::test(start_paused = true)]
async fn a_definition_counts_once_it_has_settled() {
    let store = forgetful();
    let (first, second) = (defined("scheme = 'segment'"), defined("scheme = 'segment'\nmaximum = 99"));
    let mut settled = Follower::default();
    add(&store, &name(), &first, IfDropped::Resume).await.unwrap();
    assert_eq!(settled.list(&store).await.unwrap(), [], "seen for the first time");
    tokio::time::sleep(Duration::from_millis(1999)).await;
    assert_eq!(settled.list(&store).await.unwrap(), []);
    tokio::time::sleep(Duration::from_millis(1)).await;
    let of = |definition: &Definition, edition| {
        let record = NamespaceRecord::new(definition.clone(), ServedBy::EveryNode);
        [("orders".to_owned(), Ok(NamespaceRecord { edition, ..record }))]
    };
    assert_eq!(settled.list(&store).await.unwrap(), of(&first, 1));
    set(&store, &name(), |_: &Definition| Ok::<_, NamespaceError>(second.clone())).await.unwrap();
    assert_eq!(settled.list(&store).await.unwrap(), of(&first, 1), "the change has not settled");
    assert_eq!(settled.settle(&store).await.unwrap(), of(&second, 2));
}

#[tokio::test(start_paused = true)]
async fn a_definition_that_is_lost_or_followed_by_another_does_not_settle() {
    let store = forgetful();
    let record = add(&store, &name(), &defined("scheme = 'segment'"), IfDropped::Resume).await.unwrap();
    let began = Instant::now();
    settle(&store, &name(), &record).await.unwrap();
    assert!(began.elapsed() >= Duration::from_secs(2), "{:?}", began.elapsed());
    let follow = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        drop_namespace(&store, &name(), 5).await.unwrap();
    };
    let name = name();
    let (settling, ()) = tokio::join!(settle(&store, &name, &record), follow);
    let error = settling.unwrap_err();
    assert!(matches!(error, NamespaceError::Unsettled { .. }), "{error}");
    assert!(error.to_string().contains("within 2s (may_lose)"), "{error}");
}

fn numbers(remainder: u64, delta: u64) -> Numbers {
    serde_json::from_str(&format!(r#"{{"remainder":{remainder},"delta":{delta}}}"#)).unwrap()
}

/// Goal: two sources that return the same numbers are never both used, even if no node sees both at the same
/// time; and a source keeps the numbers that it returned at first. Method: each source is claimed as by its
/// own node.
#[tokio::test]
async fn sources_are_compared_by_what_the_record_remembers() {
    let store = MemoryStore::new();
    let of = |user: &str| {
        let source = |host: &str| format!("'tickets:mysql://{user}@{host}/t'");
        defined(&format!("scheme = 'segment'\nsources = [{}, {}, {}]", source("a"), source("b"), source("c")))
    };
    let wanted = of("x");
    let missing = claim_numbers(&store, &name(), &wanted, 0, numbers(1, 2)).await.unwrap_err();
    assert!(matches!(missing, NamespaceError::Missing { .. }), "{missing}");
    add(&store, &name(), &wanted, IfDropped::Resume).await.unwrap();
    let claim = async |nth, found| {
        claim_numbers(&store, &name(), &of("y"), nth, found).await.map(|claimed| claimed.numbers)
    };
    assert_eq!(claim(1, numbers(1, 2)).await.unwrap(), numbers(1, 2));
    let overlap = claim(0, numbers(1, 4)).await.unwrap_err().to_string();
    for words in ["namespace orders", "x@a/t", "x@b/t", "1 modulo 2", "1 modulo 4", "given twice"] {
        assert!(overlap.contains(words), "{words}: {overlap}");
    }
    assert_eq!(claim(2, numbers(0, 4)).await.unwrap(), numbers(0, 4));
    assert_eq!(claim(0, numbers(2, 4)).await.unwrap(), numbers(2, 4));
    let again = claim_numbers(&store, &name(), &wanted, 0, numbers(2, 4)).await.unwrap();
    assert_eq!(again, Claimed { numbers: numbers(2, 4), was: Recorded::Before }, "nothing is written twice");
    // Fewer of the same numbers do no harm; any others do.
    assert_eq!(claim(1, numbers(3, 8)).await.unwrap(), numbers(1, 2));
    for found in [numbers(0, 2), numbers(0, 1), numbers(0, 4)] {
        let changed = claim(1, found).await.unwrap_err().to_string();
        assert!(changed.contains("1 modulo 2 when it was first used"), "{changed}");
    }
    let moved = defined("scheme = 'segment'\nsources = ['tickets:mysql://z/t']");
    let error = claim_numbers(&store, &name(), &moved, 0, numbers(1, 2)).await.unwrap_err();
    assert!(matches!(error, NamespaceError::Mismatch(_)), "{error}");

    // The numbers are remembered through changes, and while the namespace is dropped.
    set(&store, &name(), |_: &Definition| Ok::<_, NamespaceError>(of("z"))).await.unwrap();
    drop_namespace(&store, &name(), 5).await.unwrap();
    assert!(matches!(claim(1, numbers(1, 2)).await, Err(NamespaceError::Dropped { .. })));
    add(&store, &name(), &of("x"), IfDropped::Resume).await.unwrap();
    assert!(claim(1, numbers(0, 2)).await.is_err());
    drop_namespace(&store, &name(), 5).await.unwrap();
    add(&store, &name(), &of("x"), IfDropped::Restart).await.unwrap();
}

/// Goal: sources move only from where they were compared. Method: another move in between.
#[tokio::test]
async fn sources_that_moved_meanwhile_are_compared_first() {
    let store = MemoryStore::new();
    let sources =
        ["a", "b", "c"].map(|host| [format!("redis-counter:redis://{host}/0?counter=n").parse().unwrap()]);
    let [a, b, c] = &sources;
    let toml = format!("scheme = 'segment'\nsources = ['{}']", a[0]);
    add(&store, &name(), &defined(&toml), IfDropped::Resume).await.unwrap();
    let moved = move_sources(&store, &name(), a, b).await.unwrap();
    let error = move_sources(&store, &name(), a, c).await.unwrap_err();
    assert!(matches!(error, NamespaceError::OtherSources { .. }), "{error}");
    assert!(error.to_string().contains("redis://b/0"), "{error}");
    // The same move by two nodes counts as one.
    assert_eq!(move_sources(&store, &name(), a, b).await.unwrap().definition, moved.definition);
    move_sources(&store, &name(), b, c).await.unwrap();
}

/// Goal: two sources that return the same numbers are not both used, even if a restored store forgot the
/// first claim and got it back by hand or by an earlier version. Method: a record that holds both.
#[tokio::test]
async fn claims_that_overlap_are_refused_where_both_are_recorded() {
    let store = MemoryStore::new();
    let wanted = defined("scheme = 'segment'\nsources = ['tickets:mysql://a/t', 'tickets:mysql://b/t']");
    let odd = Some(numbers(1, 2));
    let both = NamespaceRecord {
        numbers: vec![odd, odd],
        ..NamespaceRecord::new(wanted.clone(), ServedBy::EveryNode)
    };
    put_back(&store, &name(), &both).await.unwrap();
    for nth in [0, 1] {
        let error = claim_numbers(&store, &name(), &wanted, nth, numbers(1, 2)).await.unwrap_err();
        assert!(error.to_string().contains("given twice"), "{error}");
    }
}

/// Goal: a source is used only once every node can see its numbers. Method: a store that may lose 2 s, under
/// paused time, with another claim in the middle of the wait.
#[tokio::test(start_paused = true)]
async fn what_a_source_gives_counts_once_it_has_settled() {
    let store = forgetful();
    let wanted = defined("scheme = 'segment'\nsources = ['tickets:mysql://a/t', 'tickets:mysql://b/t']");
    add(&store, &name(), &wanted, IfDropped::Resume).await.unwrap();
    let began = Instant::now();
    let claim = async |nth, wait| {
        tokio::time::sleep(Duration::from_secs(wait)).await;
        let claimed = claim_numbers(&store, &name(), &wanted, nth, numbers(nth as u64, 2)).await.unwrap();
        (claimed.numbers, began.elapsed())
    };
    let ((one, one_after), (other, other_after)) = tokio::join!(claim(0, 0), claim(1, 1));
    assert_eq!((one, other), (numbers(0, 2), numbers(1, 2)));
    assert!(one_after >= Duration::from_secs(4), "another write was in between: {one_after:?}");
    assert!(other_after >= Duration::from_secs(3), "{other_after:?}");
}

/// A store in memory that claims the properties that a test needs.
#[derive(Debug)]
struct Said {
    store: MemoryStore,
    may_lose: Duration,
    reach: Visibility,
}

/// Returns a store that may lose 2 s.
fn forgetful() -> Said {
    Said { store: MemoryStore::new(), may_lose: Duration::from_secs(2), reach: Visibility::Process }
}

#[async_trait]
impl Store for Said {
    async fn load(&self, key: &Key) -> Result<Option<Versioned>, StoreError> {
        self.store.load(key).await
    }

    async fn compare_and_set(&self, key: &Key, expected: Expected, value: &[u8]) -> Result<Swap, StoreError> {
        self.store.compare_and_set(key, expected, value).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(Key, Versioned)>, StoreError> {
        self.store.list(prefix).await
    }

    fn may_lose(&self) -> Duration {
        self.may_lose
    }

    fn visibility(&self) -> Visibility {
        self.reach
    }

    fn describe(&self) -> String {
        self.store.describe()
    }
}

fn form(text: &str) -> Definition {
    let text = if text.is_empty() { String::new() } else { format!("\ntext = '{text}'") };
    defined(&format!("scheme = 'segment'{text}"))
}

/// Goal: no id gets the text of an earlier one, whatever form the namespace changes to, and by which call.
/// Method: forms that write 21 as `15` did before, over one form in between, by each call that writes a form.
#[tokio::test]
async fn a_text_form_that_could_repeat_a_text_is_refused() {
    let store = MemoryStore::new();
    let to =
        async |text: &str| set(&store, &name(), |_: &Definition| Ok::<_, NamespaceError>(form(text))).await;
    add(&store, &name(), &form(""), IfDropped::Resume).await.unwrap();
    let error = to("{hex}").await.unwrap_err();
    assert!(matches!(error, NamespaceError::Text(_)), "{error}");
    for word in ["to `{hex}`", "written as `{number}`", "use a new namespace"] {
        assert!(error.to_string().contains(word), "{error}");
    }
    // In between the form is another one; earlier ids keep their texts.
    to("X-{number:4}").await.unwrap();
    for (text, words) in [("{hex}", "written as `{number}`"), ("X-{base62:4}", "written as `X-{number:4}`")] {
        let error = to(text).await.unwrap_err().to_string();
        assert!(error.contains(words), "{text}: {error}");
        let error = define(&store, &name(), &form(text)).await.unwrap_err().to_string();
        assert!(error.contains(words), "{text}: {error}");
    }
    drop_namespace(&store, &name(), 5).await.unwrap();
    let error = add(&store, &name(), &form("{hex}"), IfDropped::Resume).await.unwrap_err();
    assert!(matches!(error, NamespaceError::Text(_)), "{error}");
    add(&store, &name(), &form(""), IfDropped::Resume).await.unwrap();
    for text in ["X-{number:6}", "Y-{hex}", "", "Z{number}"] {
        to(text).await.unwrap_or_else(|error| panic!("{text}: {error}"));
    }
    // A name alone keeps the form.
    assert_eq!(pin(&store, &name(), &form("{hex}")).await.unwrap().definition, form("Z{number}"));
}

/// Goal: a store that every node reaches has no namespace whose numbers some nodes cannot find. Method: a
/// store that claims to be on the network, by each call that writes a definition; a dropped namespace may be
/// written whatever its sources.
#[tokio::test]
async fn sources_that_not_every_node_sees_are_refused() {
    let store = MemoryStore::new();
    let file = defined("scheme = 'segment'\nsources = ['1/2 mysql://localhost/ids']");
    add(&store, &name(), &file, IfDropped::Resume).await.unwrap();
    drop_namespace(&store, &name(), 5).await.unwrap();
    let shared = Said { store, may_lose: Duration::ZERO, reach: Visibility::Network };
    for error in [
        add(&shared, &name(), &file, IfDropped::Resume).await.unwrap_err(),
        add(&shared, &NamespaceName::new("b").unwrap(), &file, IfDropped::Refuse).await.unwrap_err(),
        pin(&shared, &NamespaceName::new("b").unwrap(), &file).await.unwrap_err(),
        define(&shared, &NamespaceName::new("b").unwrap(), &file).await.unwrap_err(),
    ] {
        assert!(matches!(error, NamespaceError::Sources { .. }), "{error}");
        assert!(error.to_string().contains("nodes on other machines"), "{error}");
    }
}

/// Goal: a record that is written back is no older than any that was seen, whichever of several nodes is
/// first. Method: two nodes saw records of different age, and put them back in each order; another node
/// changed the record in the meantime.
#[tokio::test]
async fn a_record_that_is_put_back_is_the_newest_that_was_seen() {
    let lost = MemoryStore::new();
    let older = add(&lost, &name(), &form(""), IfDropped::Resume).await.unwrap();
    let set = async |store: &MemoryStore, text: &str| {
        set(store, &name(), |_: &Definition| Ok::<_, NamespaceError>(form(text))).await.unwrap()
    };
    set(&lost, "A{number}").await;
    let newer = set(&lost, "B{number}").await;
    assert_eq!(newer.edition, 3);
    for order in [[&older, &newer], [&newer, &older]] {
        let store = MemoryStore::new();
        for seen in order {
            put_back(&store, &name(), seen).await.unwrap();
        }
        let record = put_back(&store, &name(), &older).await.unwrap();
        assert_eq!((&record.definition, record.served_by), (&newer.definition, ServedBy::EveryNode));
        assert_eq!(record.earlier_texts, [None, "A{number}".parse().ok()]);
        let later = set(&store, "C{number}").await;
        assert!(later.edition > newer.edition);
        assert_eq!(put_back(&store, &name(), &newer).await.unwrap(), later, "what is newer stays");
    }
    let store = MemoryStore::new();
    pin(&store, &name(), &defined("scheme = 'uuid7'")).await.unwrap();
    let record = put_back(&store, &name(), &newer).await.unwrap();
    assert_eq!(record.definition, newer.definition, "a lower edition went back, whatever it says");
    let other = NamespaceRecord {
        edition: record.edition,
        ..NamespaceRecord::new(defined("scheme = 'uuid7'"), ServedBy::ConfiguredNodes)
    };
    let error = put_back(&store, &name(), &other).await.unwrap_err();
    assert!(
        matches!(error, NamespaceError::Mismatch(_)),
        "of two with one edition neither is the newer: {error}"
    );
}

/// Goal: in steady state a node reads one record, and yet sees every change: announced, not announced, or
/// written between its two reads. Method: a store that counts lists, and writes at the worst moment; paused
/// time.
#[tokio::test(start_paused = true)]
async fn a_node_that_follows_lists_only_what_has_changed() {
    let store = Counting::default();
    let mut node = Follower::default();
    let names = |listed: &[Listed]| listed.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    let lists = |store: &Counting| store.lists.swap(0, Ordering::Relaxed);
    assert_eq!((node.follow(&store).await.unwrap(), lists(&store)), (vec![], 1));
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!((node.follow(&store).await.unwrap(), lists(&store)), (vec![], 0));
    }
    add(&store.store, &name(), &defined("scheme = 'segment'"), IfDropped::Resume).await.unwrap();
    assert_eq!((names(&node.follow(&store).await.unwrap()), lists(&store)), (vec!["orders".to_owned()], 1));
    assert_eq!((names(&node.follow(&store).await.unwrap()), lists(&store)), (vec!["orders".to_owned()], 0));
    // Another node adds one after this node has read the version, and a third after the list.
    set(&store, &name(), |_: &Definition| {
        Ok::<_, NamespaceError>(defined("scheme = 'segment'\nmaximum = 9"))
    })
    .await
    .unwrap();
    *store.before_a_list.lock().unwrap() = Some("early");
    *store.after_a_list.lock().unwrap() = Some("late");
    let seen = names(&node.follow(&store).await.unwrap());
    assert_eq!((seen, lists(&store)), (vec!["early".to_owned(), "orders".to_owned()], 1));
    let seen = names(&node.follow(&store).await.unwrap());
    assert_eq!((seen.len(), lists(&store)), (3, 1));
    // An earlier version of Snowmint changes a record and does not announce it.
    let record = NamespaceRecord::new(defined("scheme = 'uuid7'"), ServedBy::EveryNode).to_bytes().unwrap();
    let silent = Key::new("namespaces/silent").unwrap();
    let _ = store.store.compare_and_set(&silent, Expected::Absent, &record).await.unwrap();
    assert_eq!((node.follow(&store).await.unwrap().len(), lists(&store)), (3, 0));
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!((node.follow(&store).await.unwrap().len(), lists(&store)), (4, 1));
}

/// A change that could not be announced still takes effect; a store that lost its newest writes shows another
/// version.
#[tokio::test(start_paused = true)]
async fn a_change_that_is_not_announced_is_seen_within_a_minute_and_a_loss_at_once() {
    let store = Counting::default();
    let mut node = Follower::default();
    node.follow(&store).await.unwrap();
    store.refuses_versions.store(true, Ordering::Relaxed);
    add(&store, &name(), &defined("scheme = 'segment'"), IfDropped::Resume).await.unwrap();
    assert_eq!(node.follow(&store).await.unwrap().len(), 0);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(node.follow(&store).await.unwrap().len(), 1);
    store.refuses_versions.store(false, Ordering::Relaxed);
    drop_namespace(&store, &name(), 5).await.unwrap();
    node.follow(&store).await.unwrap();
    // Everything is lost, and as much was written since.
    let restored = Counting::default();
    for _ in 0..2 {
        add(&restored, &name(), &defined("scheme = 'segment'"), IfDropped::Resume).await.ok();
    }
    let seen = node.follow(&restored).await.unwrap();
    assert!(matches!(&seen[..], [(_, Ok(record))] if record.dropped_unix_ms.is_none()), "{seen:?}");
}

/// Over a store that may lose its newest writes, a node lists until a change has settled, and no longer.
#[tokio::test(start_paused = true)]
async fn a_node_that_follows_lists_until_all_has_settled() {
    let store = Counting { may_lose: Duration::from_secs(2), ..Counting::default() };
    let mut node = Follower::default();
    add(&store.store, &name(), &defined("scheme = 'segment'"), IfDropped::Resume).await.unwrap();
    let mut seen = Vec::new();
    for _ in 0..6 {
        seen.push((node.follow(&store).await.unwrap().len(), store.lists.swap(0, Ordering::Relaxed)));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(seen, [(0, 1), (0, 1), (1, 1), (1, 0), (1, 0), (1, 0)]);
}

/// A store in memory that counts lists, and on which others write before and after a list.
#[derive(Debug, Default)]
struct Counting {
    store: MemoryStore,
    lists: AtomicU64,
    before_a_list: Mutex<Option<&'static str>>,
    after_a_list: Mutex<Option<&'static str>>,
    refuses_versions: AtomicBool,
    may_lose: Duration,
}

impl Counting {
    async fn added_by_another(&self, when: &Mutex<Option<&'static str>>) {
        let added = when.lock().unwrap().take();
        if let Some(name) = added {
            let name = NamespaceName::new(name).unwrap();
            add(&self.store, &name, &defined("scheme = 'segment'"), IfDropped::Resume).await.unwrap();
        }
    }
}

#[async_trait]
impl Store for Counting {
    async fn load(&self, key: &Key) -> Result<Option<Versioned>, StoreError> {
        self.store.load(key).await
    }

    async fn compare_and_set(&self, key: &Key, expected: Expected, value: &[u8]) -> Result<Swap, StoreError> {
        if key.as_str() == VERSION && self.refuses_versions.load(Ordering::Relaxed) {
            return Err(StoreError::new(StoreErrorKind::Unavailable, "call", "counting", "unplugged"));
        }
        self.store.compare_and_set(key, expected, value).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(Key, Versioned)>, StoreError> {
        self.lists.fetch_add(1, Ordering::Relaxed);
        self.added_by_another(&self.before_a_list).await;
        let listed = self.store.list(prefix).await;
        self.added_by_another(&self.after_a_list).await;
        listed
    }

    fn may_lose(&self) -> Duration {
        self.may_lose
    }

    fn describe(&self) -> String {
        "counting".to_owned()
    }
}

/// Goal: after a write without an answer, no failure claims that nothing was changed. Method: the write takes
/// place and its answer is lost; then the store is down, or another change follows.
#[tokio::test(start_paused = true)]
async fn a_failure_after_a_lost_answer_is_an_unknown_outcome() {
    use crate::test_store::{Fate, LostAnswers};
    let segment = defined("scheme = 'segment'");
    for fates in [&[Fate::LostDoneAndDown][..], &[Fate::LostBefore, Fate::Refused]] {
        let store = LostAnswers::default();
        store.will(fates);
        let error = add(&store, &name(), &segment, IfDropped::Resume).await.unwrap_err();
        let NamespaceError::Store(error) = error else { panic!("{error}") };
        assert_eq!(error.kind(), StoreErrorKind::OutcomeUnknown, "{fates:?}: {error}");
        assert!(!error.to_string().contains("nothing was written"), "{error}");
    }
    // The write took place, and somebody dropped the namespace before the node looked.
    let store = LostAnswers::default();
    store.will(&[Fate::LostDone]);
    let orders = name();
    let adding = add(&store, &orders, &segment, IfDropped::Refuse);
    let dropping = async {
        tokio::time::sleep(BEFORE_LOOKING / 2).await;
        drop_namespace(&store.inner, &name(), 5).await.unwrap();
    };
    let (added, ()) = tokio::join!(adding, dropping);
    let NamespaceError::Store(error) = added.unwrap_err() else { panic!("it was added") };
    assert_eq!(error.kind(), StoreErrorKind::OutcomeUnknown);
    assert!(error.to_string().contains("namespace orders was changed again since"), "{error}");
}

/// Goal: an addition or drop that requires a record changes no other one. Method: each requirement, met and
/// not met.
#[tokio::test]
async fn a_change_requires_the_record_that_it_names() {
    let store = MemoryStore::new();
    let segment = defined("scheme = 'segment'");
    let changed = |result: Result<NamespaceRecord, NamespaceError>| match result {
        Ok(record) => Some(record.edition),
        Err(NamespaceError::Edition { .. }) => None,
        Err(other) => panic!("{other}"),
    };
    let add = async |required| changed(add_if(&store, &name(), &segment, IfDropped::Resume, required).await);
    let drop = async |required| changed(drop_namespace_if(&store, &name(), 5, required).await);
    for required in [Required::Present, Required::Edition(1)] {
        assert_eq!(add(required).await, None);
    }
    assert_eq!(add(Required::Absent).await, Some(1));
    assert_eq!(drop(Required::Edition(2)).await, None);
    assert_eq!(drop(Required::Absent).await, None);
    assert_eq!(drop(Required::Edition(1)).await, Some(2));
    assert_eq!(add(Required::Absent).await, None);
    assert_eq!(add(Required::Edition(1)).await, None);
    assert_eq!(add(Required::Edition(2)).await, Some(3));
    assert_eq!(drop(Required::Present).await, Some(4));
}
