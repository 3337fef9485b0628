//! Goal: ids that real systems print, document and test give the same results here. Method: every case of
//! `spec/vectors.json` has one owner: a kind that runs it, or a reason why nothing can. Each kind states its
//! number of cases, and a case counts as run only if every member of `expected` was read. `tests/vectors.json`
//! is a link, so that the package has the file too.

mod generators;
mod layouts;
mod schemes;
mod texts;

use std::cell::RefCell;
use std::collections::BTreeSet;

use serde_json::Value;
use snowmint::{Id, Layout};

/// The cases of one kind, and the function that runs each.
pub(crate) struct Kind {
    /// `kind`, or `kind:member` for those that expect a member, `kind:!member` for those that do not.
    name: &'static str,
    cases: usize,
    run: fn(&Case<'_>),
}

impl Kind {
    pub(crate) const fn new(name: &'static str, cases: usize, run: fn(&Case<'_>)) -> Self {
        Self { name, cases, run }
    }
}

/// Kinds that another file runs because they need private items: (kind, cases, file, how that file counts
/// them).
const ELSEWHERE: &[(&str, usize, &str, &str)] =
    &[("ulid-monotonic-next", 2, "src/scheme/ulid.rs", "assert_eq!(cases.len(), 2);")];

/// Kinds that nothing here can make or read, and why.
const OUT_OF_SCOPE: &[(&str, usize, &str)] = &[
    (
        "decode-flake128",
        1,
        "64 bits of time, 48 of MAC and 16 of sequence; an id has 63 and no scheme is this one",
    ),
    ("decode-flake128-base62", 1, "as decode-flake128"),
    (
        "worker-collision",
        1,
        "two workers from one counter modulo 961: here workers are leased, never computed",
    ),
    ("behaviour:valid", 1, "user agents of Twitter's Thrift service, which is not served"),
];

/// Members that explain a case and say nothing about its id.
const REMARKS: &[&str] = &["why", "delta_years", "created_at_in_docs", "observed_in_issue"];

/// A case; it records which members of `expected` were read.
pub(crate) struct Case<'a> {
    value: &'a Value,
    read: RefCell<BTreeSet<String>>,
}

impl<'a> Case<'a> {
    /// Returns the id as its source writes it.
    pub(crate) fn text(&self) -> &'a str {
        self.value["id"].as_str().unwrap()
    }

    /// Returns the id as a number; `None` from 2^63 on.
    pub(crate) fn number_below_2_63(&self) -> Option<Id> {
        Id::new(self.text().parse().unwrap()).ok()
    }

    pub(crate) fn id(&self) -> Id {
        self.number_below_2_63().unwrap()
    }

    pub(crate) fn get(&self, member: &str) -> Option<&'a Value> {
        let value = self.value["expected"].get(member)?;
        self.read.borrow_mut().insert(member.to_owned());
        Some(value)
    }

    pub(crate) fn number(&self, member: &str) -> u64 {
        self.get(member).and_then(Value::as_u64).unwrap_or_else(|| panic!("no number {member}"))
    }

    pub(crate) fn word(&self, member: &str) -> &'a str {
        self.get(member).and_then(Value::as_str).unwrap_or_else(|| panic!("no text {member}"))
    }

    pub(crate) fn numbers(&self, member: &str) -> Vec<u64> {
        let all = self.get(member).and_then(Value::as_array).unwrap();
        // Ids are texts, other numbers are numbers.
        let number = |one: &Value| one.as_str().map_or_else(|| one.as_u64(), |text| text.parse().ok());
        all.iter().map(|one| number(one).unwrap()).collect()
    }

    /// Checks a case that only says that it must be rejected.
    pub(crate) fn must_be_refused(&self) {
        assert_eq!(self.get("error"), Some(&Value::Bool(true)));
    }

    pub(crate) fn members(&self) -> impl Iterator<Item = &'a String> {
        self.value["expected"].as_object().unwrap().keys()
    }

    /// Skips a case whose feature this build does not have.
    #[allow(dead_code, reason = "with all features there is none")]
    pub(crate) fn needs_another_feature(&self) {
        self.read.borrow_mut().extend(self.members().cloned());
    }

    fn unread(&self) -> Vec<&'a String> {
        let read = self.read.borrow();
        self.members()
            .filter(|member| !read.contains(*member) && !REMARKS.contains(&member.as_str()))
            .collect()
    }
}

impl Drop for Case<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the case: {}", self.value);
        }
    }
}

/// Returns the layout of a preset.
pub(crate) fn preset(name: &str) -> Layout {
    snowmint::layout::PRESETS.iter().find(|preset| preset.name == name).unwrap().layout
}

fn cases() -> Vec<Value> {
    serde_json::from_str(include_str!("../vectors.json")).unwrap()
}

fn is_of(case: &Value, name: &str) -> bool {
    let (kind, member) = name.split_once(':').unwrap_or((name, "!"));
    let expects = |member: &str| case["expected"].get(member).is_some();
    case["kind"] == kind
        && member.strip_prefix('!').map_or_else(|| expects(member), |member| !expects(member))
}

fn run(kinds: &[Kind]) {
    let all = cases();
    for kind in kinds {
        let mut count = 0;
        for value in all.iter().filter(|case| is_of(case, kind.name)) {
            let case = Case { value, read: RefCell::default() };
            (kind.run)(&case);
            assert_eq!(case.unread(), Vec::<&String>::new(), "a member nobody looked at");
            count += 1;
        }
        assert_eq!(count, kind.cases, "cases of {}", kind.name);
    }
}

#[test]
fn layouts_take_ids_apart_and_put_them_together() {
    run(layouts::KINDS);
}

#[test]
fn texts_read_and_write() {
    run(texts::KINDS);
}

#[test]
fn generators_go_on_as_they_should() {
    run(generators::KINDS);
}

#[test]
fn schemes_read_and_write() {
    run(schemes::KINDS);
}

#[test]
fn every_case_has_one_owner() {
    let run = [layouts::KINDS, texts::KINDS, generators::KINDS, schemes::KINDS].into_iter().flatten();
    let mut owners: Vec<(&str, usize)> = run.map(|kind| (kind.name, kind.cases)).collect();
    owners.extend(ELSEWHERE.iter().map(|(name, cases, ..)| (*name, *cases)));
    owners.extend(OUT_OF_SCOPE.iter().map(|(name, cases, _)| (*name, *cases)));
    let all = cases();
    for case in &all {
        let of: Vec<_> = owners.iter().filter(|(name, _)| is_of(case, name)).collect();
        assert_eq!(of.len(), 1, "{case} belongs to {of:?}");
    }
    for (name, cases) in &owners {
        assert_eq!(all.iter().filter(|case| is_of(case, name)).count(), *cases, "cases of {name}");
    }
    assert_eq!(all.len(), 120, "a case was added or lost");
    for (name, _, file, counts) in ELSEWHERE {
        let source = std::fs::read_to_string(format!("{}/{file}", env!("CARGO_MANIFEST_DIR"))).unwrap();
        assert!(source.contains(&format!("\"{name}\"")) && source.contains(counts), "{file} {name}");
    }
}
