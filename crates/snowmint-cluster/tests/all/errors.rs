//! Goal: a report of an error and its causes shows no text twice. Method: one error of each type that has a
//! cause or holds another error; no text of its chain of sources contains a later one.

use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use snowmint::Layout;
use snowmint::error::Chain;
use snowmint::field::Field;
use snowmint_cluster::audit::AuditError;
use snowmint_cluster::lease::Record;
use snowmint_cluster::namespace::{DefinitionError, HideError, InspectError, TextForm};
use snowmint_cluster::segment::SegmentConfigError;
use snowmint_cluster::{
    IdentityError, LeaseConfigError, LeaseError, NamespaceError, NamespaceName, NextIdError, SavedLeasesError,
};
use snowmint_store::{StoreError, StoreErrorKind};

fn store_error() -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, "load", "etcd://h", "connection refused")
}

#[test]
fn no_text_is_in_a_chain_twice() {
    let name = || "orders".parse::<NamespaceName>().unwrap();
    let sizes = || DefinitionError::Segment(SegmentConfigError::Sizes { smallest: 9, largest: 1 });
    let not_an_id = "x".parse::<snowmint::Id>().unwrap_err();
    let denied = || io::Error::from(io::ErrorKind::PermissionDenied);
    let directory = PathBuf::from("/data");
    let unreadable = |record: &str| Record::from_bytes(record.as_bytes()).unwrap_err();
    let widths = Layout::TWITTER.check(Field::Worker, 32).unwrap_err();
    let errors: [(Box<dyn Error>, &str); 16] = [
        (Box::new(NamespaceError::Sources { name: name(), error: sizes() }), "invalid segment sizes 9 to 1"),
        (
            Box::new(NamespaceError::Hide {
                name: name(),
                error: HideError::NoKey { key: "k".parse().unwrap() },
            }),
            "hide key k is missing",
        ),
        (Box::new(NamespaceError::from(store_error())), "connection refused"),
        (Box::new(AuditError::from(store_error())), "connection refused"),
        (Box::new(LeaseError::Store(Arc::new(store_error()))), "connection refused"),
        (Box::new(SavedLeasesError::Directory { directory, error: denied() }), "permission denied"),
        (Box::new(IdentityError::Addresses(Arc::new(denied()))), "permission denied"),
        (Box::new(InspectError::from(not_an_id)), "`x` at position 0"),
        (Box::new(sizes()), "invalid segment sizes 9 to 1"),
        (Box::new(LeaseConfigError::from(widths)), "worker 32 is out of range"),
        (Box::new("{alphabet=aa}".parse::<TextForm>().unwrap_err()), "`a` appears at positions 0 and 1"),
        (Box::new("9/2 memory:".parse::<snowmint_cluster::namespace::CounterSource>().unwrap_err()), "9/2"),
        (Box::new(NextIdError::Refused(snowmint::GenerateError::Ended)), "ended"),
        (Box::new(unreadable("{")), "EOF"),
        (Box::new(unreadable(r#"{"holder":"","until":1,"tag":"0"}"#)), "invalid holder"),
        (Box::new(unreadable(r#"{"holder":"h","until":1,"tag":"x"}"#)), "invalid tag `x`"),
    ];
    for (error, words) in &errors {
        let chain: Vec<String> =
            std::iter::successors(Some(&**error), |&error| error.source()).map(ToString::to_string).collect();
        for (at, text) in chain.iter().enumerate() {
            assert!(chain[at + 1..].iter().all(|cause| !text.contains(cause)), "{chain:?}");
        }
        let report = Chain(&**error).to_string();
        assert_eq!(report.matches(words).count(), 1, "{report}");
    }
}
