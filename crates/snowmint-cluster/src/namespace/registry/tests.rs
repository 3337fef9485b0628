//! Tests of the registry on a store in memory.

use snowmint::Layout;
use snowmint_store::MemoryStore;

use super::super::fields::Fields;
use super::*;

fn name() -> NamespaceName {
    NamespaceName::new("orders").unwrap()
}

fn defined(toml: &str) -> Definition {
    toml::from_str::<Fields>(toml).unwrap().define(&Layout::TWITTER).unwrap()
}

#[tokio::test]
async fn a_dropped_namespace_goes_on_or_starts_over_only_when_told() {
    let store = MemoryStore::new();
    let (segment, other) = (defined("scheme = 'segment'"), defined("scheme = 'segment'\nstripe = '1/2'"));
    add(&store, &name(), &segment, Again::GoOn).await.unwrap();
    let twice = add(&store, &name(), &segment, Again::StartOver).await.unwrap_err();
    assert!(matches!(twice, NamespaceError::Exists { .. }), "{twice}");
    drop_namespace(&store, &name(), 1_795_219_200_000).await.unwrap();
    for error in [
        pin(&store, &name(), &segment).await.unwrap_err(),
        define(&store, &name(), &segment).await.unwrap_err(),
        drop_namespace(&store, &name(), 5).await.unwrap_err(),
    ] {
        assert!(error.to_string().contains("was dropped on 2026-11-21T00:00:00.000Z"), "{error}");
    }
    let refused = add(&store, &name(), &other, Again::GoOn).await.unwrap_err();
    assert!(matches!(refused, NamespaceError::Mismatch(_)), "{refused}");
    let again = add(&store, &name(), &segment, Again::GoOn).await.unwrap();
    assert_eq!(again.definition, segment);
    drop_namespace(&store, &name(), 5).await.unwrap();
    let over = add(&store, &name(), &other, Again::StartOver).await.unwrap();
    assert_eq!(over.definition.scheme.series(), 2);
    // The series stays with the namespace from then on.
    drop_namespace(&store, &name(), 5).await.unwrap();
    let again = add(&store, &name(), &other, Again::GoOn).await.unwrap();
    assert_eq!(again.definition.scheme.series(), 2);
}

#[tokio::test]
async fn a_pin_keeps_what_may_change_and_a_definition_changes_it() {
    let store = MemoryStore::new();
    let (plain, form) = (defined("scheme = 'segment'"), defined("scheme = 'segment'\ntext = 'A{number}'"));
    pin(&store, &name(), &form).await.unwrap();
    assert_eq!(pin(&store, &name(), &plain).await.unwrap().definition, form);
    assert_eq!(define(&store, &name(), &plain).await.unwrap().definition, plain);
    let listed = list(&store).await.unwrap();
    assert_eq!(listed, [("orders".to_owned(), Ok(NamespaceRecord::new(plain, Reach::Named)))]);
}

#[tokio::test]
async fn a_change_is_checked_against_what_is_there() {
    let store = MemoryStore::new();
    let to = |toml: &'static str| move |_: &Definition| Ok::<_, NamespaceError>(defined(toml));
    let error = set(&store, &name(), to("scheme = 'segment'")).await.unwrap_err();
    assert!(matches!(error, NamespaceError::Missing { .. }), "{error}");
    add(&store, &name(), &defined("scheme = 'segment'"), Again::GoOn).await.unwrap();
    let error = set(&store, &name(), to("scheme = 'uuid7'")).await.unwrap_err();
    assert!(matches!(error, NamespaceError::Mismatch(_)), "{error}");
    let set = set(&store, &name(), to("scheme = 'segment'\nmaximum = 99")).await.unwrap();
    assert_eq!(set.definition, defined("scheme = 'segment'\nmaximum = 99"));
    assert_eq!(set.reach, Reach::Everywhere);
}
