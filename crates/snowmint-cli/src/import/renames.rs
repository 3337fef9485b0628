//! Names of namespaces for counters whose own name is none, such as the tag `pay/refund`.

use std::collections::BTreeMap;

use snowmint::error::Snippet;
use snowmint_cluster::NamespaceName;

use crate::error::Failure;

/// One `--rename OLD=NEW`.
#[derive(Clone, Debug)]
pub(super) struct Rename {
    counter: String,
    namespace: NamespaceName,
}

impl std::str::FromStr for Rename {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // The name of a counter may contain `=`, that of a namespace may not.
        let Some((counter, namespace)) = text.rsplit_once('=').filter(|(counter, _)| !counter.is_empty())
        else {
            return Err("expected COUNTER=NAMESPACE, such as pay/refund=pay-refund".to_owned());
        };
        let namespace = NamespaceName::new(namespace).map_err(|error| error.to_string())?;
        Ok(Self { counter: counter.to_owned(), namespace })
    }
}

/// The new names by the names of the counters.
#[derive(Debug, Default)]
pub(super) struct Renames(BTreeMap<String, NamespaceName>);

impl Renames {
    /// Checks that each counter is there, and named once.
    pub(super) fn of(given: &[Rename], is_there: impl Fn(&str) -> bool) -> Result<Self, Failure> {
        let mut renames = BTreeMap::new();
        for Rename { counter, namespace } in given {
            let wrong = |why: &str| Err(Failure::flag("--rename", format!("{} {why}", Snippet::of(counter))));
            if !is_there(counter) {
                return wrong(
                    "is no counter of this list: name one as the column `counter` of the plan does",
                );
            }
            if renames.insert(counter.clone(), namespace.clone()).is_some() {
                return wrong("is named twice: name it once");
            }
        }
        Ok(Self(renames))
    }

    /// Returns the namespace of a counter, or why its name is none, with the flag that gives it one.
    pub(super) fn namespace(&self, counter: &str) -> Result<NamespaceName, String> {
        if let Some(namespace) = self.0.get(counter) {
            return Ok(namespace.clone());
        }
        NamespaceName::new(counter).map_err(|error| {
            let flag = suggested(counter).map_or_else(
                || "--rename COUNTER=NAME".to_owned(),
                |name| format!("--rename '{counter}={name}'"),
            );
            format!("{error}; add {flag}")
        })
    }
}

/// Returns a valid name that resembles the counter's; `None` if a shell would read the counter's name as
/// something else.
fn suggested(counter: &str) -> Option<NamespaceName> {
    let is_plain = counter.bytes().all(|b| (b.is_ascii_graphic() || b == b' ') && b != b'\'');
    let valid = |it: char| if it.is_ascii_alphanumeric() || "._-:".contains(it) { it } else { '-' };
    let name: String = counter.chars().map(valid).collect();
    NamespaceName::new(name.trim_matches('-')).ok().filter(|_| is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_gets_the_name_of_its_flag_or_a_suggestion() {
        let renames = Renames::of(&["pay/refund=refunds".parse().unwrap()], |_| true).unwrap();
        assert_eq!(renames.namespace("pay/refund").unwrap().as_str(), "refunds");
        assert_eq!(renames.namespace("order").unwrap().as_str(), "order");
        for (counter, flag) in [
            ("pay/order", "; add --rename 'pay/order=pay-order'"),
            (
                "cosid:{shop.order}.adder",
                "; add --rename 'cosid:{shop.order}.adder=cosid:-shop.order-.adder'",
            ),
            ("it's", "; add --rename COUNTER=NAME"),
            ("/", "; add --rename COUNTER=NAME"),
        ] {
            let why = renames.namespace(counter).unwrap_err();
            assert!(why.starts_with("invalid namespace name") && why.ends_with(flag), "{why}");
        }
        for bad in ["order", "=order", "a=b/c"] {
            assert!(bad.parse::<Rename>().is_err(), "{bad}");
        }
        let twice = ["a=b", "a=c"].map(|it| it.parse().unwrap());
        assert!(Renames::of(&twice, |_| true).is_err() && Renames::of(&twice[..1], |_| false).is_err());
    }
}
