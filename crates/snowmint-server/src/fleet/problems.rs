//! The problems of a fleet, and which of them are shown.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::Serialize;
use snowmint_admin::doctor::Finding;
use snowmint_admin::namespaces::raise_maximum;

use crate::limits::fleet::PROBLEMS;
use crate::mint::Namespace;

/// How bad a problem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Severity {
    /// Ids or numbers fail, or soon will.
    Error,
    /// Ids are made, but an operator should look.
    Warning,
}

/// A problem, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Problem {
    pub(super) severity: Severity,
    /// What was checked.
    #[serde(skip)]
    pub(super) check: Cow<'static, str>,
    pub(super) what: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) remedy: Option<String>,
}

impl Problem {
    /// Returns the problem that a check found, if it found one.
    pub(super) fn of(finding: &Finding) -> Option<Self> {
        (!finding.ok).then(|| Self {
            severity: Severity::Warning,
            check: finding.check.clone(),
            what: finding.text.clone(),
            remedy: None,
        })
    }

    /// Returns the problem of a second store: duplicates are possible.
    pub(super) fn of_store(what: String) -> Self {
        let remedy = "docs/troubleshooting.md, \"Two stores\", says which node to stop, and how".to_owned();
        Self { severity: Severity::Error, check: Cow::Borrowed("store"), what, remedy: Some(remedy) }
    }

    /// Returns the problem of a namespace whose numbers are all reserved.
    pub(super) fn of_numbers(namespace: &Namespace) -> Option<Self> {
        let status = namespace.segment_status()?;
        Some(Self {
            what: namespace.numbers_ended()?,
            severity: if status.left == 0 { Severity::Error } else { Severity::Warning },
            check: Cow::Borrowed("numbers"),
            remedy: Some(raise_maximum(namespace.name().as_str())),
        })
    }
}

/// Returns the problems to show, worst first, and the number of the others. Each check has its turn, so that
/// many problems of one kind hide no other.
pub(super) fn shown(mut problems: Vec<Problem>) -> (Vec<Problem>, usize) {
    problems.sort_by_key(|problem| problem.severity);
    let more = problems.len().saturating_sub(PROBLEMS);
    let mut counts: HashMap<(Severity, Cow<'static, str>), usize> = HashMap::new();
    let numbered = problems.into_iter().enumerate().map(|(place, problem)| {
        let count = counts.entry((problem.severity, problem.check.clone())).or_default();
        *count += 1;
        (*count, place, problem)
    });
    let mut numbered: Vec<_> = numbered.collect();
    numbered.sort_by_key(|(count, _, problem)| (problem.severity, *count));
    numbered.truncate(PROBLEMS);
    numbered.sort_by_key(|(_, place, _)| *place);
    (numbered.into_iter().map(|(_, _, problem)| problem).collect(), more)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a thousand problems of one kind hide no other, and errors come first. Method: many of a kind
    /// among single ones.
    #[test]
    fn problems_of_each_kind_are_shown() {
        let problem = |severity, check: &'static str, what: u32| Problem {
            severity,
            check: Cow::Borrowed(check),
            what: what.to_string(),
            remedy: None,
        };
        let mut all = vec![problem(Severity::Warning, "clock", 0)];
        all.extend((1..=1000).map(|what| problem(Severity::Warning, "namespace", what)));
        all.push(problem(Severity::Warning, "room", 1001));
        all.push(problem(Severity::Error, "node", 1002));
        let (problems, more) = shown(all);
        assert_eq!((problems.len(), more), (PROBLEMS, 1003 - PROBLEMS));
        let what: Vec<u32> = problems.iter().map(|problem| problem.what.parse().unwrap()).collect();
        let last_of_many = u32::try_from(PROBLEMS).unwrap() - 3;
        let wanted: Vec<u32> = [1002, 0].into_iter().chain(1..=last_of_many).chain([1001]).collect();
        assert_eq!(what, wanted);
    }
}
