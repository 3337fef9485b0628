//! `snowmint ns list`: every namespace of a store, what it is, and how far its numbers are.

use serde::Serialize;
use snowmint::utc::Utc;
use snowmint_cluster::NamespaceName;
use snowmint_cluster::namespace::registry;
use snowmint_cluster::namespace::{Fields, NamespaceRecord, NumberSource, Reach, Scheme};
use snowmint_store::{Key, Store};

use crate::exit::Failure;
use crate::output::Output;
use crate::workers::warn_of_skipped;

/// One namespace as a JSON object.
#[derive(Serialize)]
struct Row {
    name: String,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    dropped: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reserved_to: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unreadable: Option<String>,
    #[serde(flatten)]
    fields: Option<Fields>,
}

pub(super) async fn show(store: &dyn Store, json: bool) -> Result<(), Failure> {
    let listed = registry::list(store).await.map_err(Failure::runtime)?;
    warn_of_skipped(store);
    let mut out = Output::new();
    if listed.is_empty() && !json {
        out.line("this store has no namespaces: `snowmint ns add` adds one, `snowmint serve` the first")?;
    }
    for (name, record) in &listed {
        let row = Row::of(store, name, record).await?;
        if json {
            out.line(&serde_json::to_string(&row).map_err(Failure::runtime)?)?;
            continue;
        }
        let what = match (record, &row.unreadable) {
            (Ok(record), _) => record.definition.to_string(),
            (Err(_), why) => why.clone().unwrap_or_default(),
        };
        let more = match (&row.dropped, row.reserved_to) {
            (Some(when), _) => format!("since {when}"),
            (None, Some(reserved)) => format!("reserved to {reserved}"),
            (None, None) => String::new(),
        };
        let line = format!("{name:<20}  {:<10}  {what}  {}", row.state, out.paint.faint(&more));
        out.line(line.trim_end())?;
    }
    out.flush()
}

impl Row {
    async fn of(
        store: &dyn Store,
        name: &str,
        record: &Result<NamespaceRecord, String>,
    ) -> Result<Self, Failure> {
        let name = name.to_owned();
        let record = match record {
            Ok(record) => record,
            Err(why) => {
                let unreadable = Some(why.clone());
                return Ok(Self {
                    name,
                    state: "unreadable",
                    dropped: None,
                    reserved_to: None,
                    unreadable,
                    fields: None,
                });
            }
        };
        Ok(Self {
            reserved_to: reserved_to(store, &name, record).await?,
            name,
            state: match (record.dropped_unix_ms, record.reach) {
                (Some(_), _) => "dropped",
                (None, Reach::Everywhere) => "served",
                (None, Reach::Named) => "named",
            },
            dropped: record.dropped_unix_ms.map(|when| Utc(when).to_string()),
            unreadable: None,
            fields: Some(Fields::from(&record.definition)),
        })
    }
}

/// The greatest number reserved in this store so far; `None` where numbers are elsewhere, or restart.
pub(super) async fn reserved_to(
    store: &dyn Store,
    name: &str,
    record: &NamespaceRecord,
) -> Result<Option<u64>, Failure> {
    let Scheme::Segment(segment) = &record.definition.scheme else { return Ok(None) };
    let (NumberSource::Own(stripe), None) = (&segment.source, segment.reset) else { return Ok(None) };
    let Ok(name) = NamespaceName::new(name) else { return Ok(None) };
    let key = Key::new(segment.counter_key(&name)).map_err(Failure::runtime)?;
    let Some(value) = store.load(&key).await.map_err(Failure::runtime)? else { return Ok(Some(0)) };
    let slots: Option<u64> = std::str::from_utf8(&value.value).ok().and_then(|text| text.parse().ok());
    let last = slots.and_then(|slots| match slots {
        0 => Some(0),
        slots => (slots - 1).checked_mul(stripe.of().into())?.checked_add(stripe.index().into()),
    });
    Ok(last)
}

#[cfg(test)]
mod tests {
    use snowmint::Layout;
    use snowmint_cluster::namespace::Definition;
    use snowmint_store::{Expected, MemoryStore};

    use super::*;

    #[tokio::test]
    async fn numbers_are_told_by_their_stripe() {
        let store = MemoryStore::new();
        let key = Key::new("segments/a").unwrap();
        let record =
            |toml: Fields| NamespaceRecord::new(toml.define(&Layout::TWITTER).unwrap(), Reach::Everywhere);
        let plain = record(Fields { scheme: "segment".to_owned(), ..Fields::default() });
        let striped =
            Fields { scheme: "segment".to_owned(), stripe: "2/3".parse().ok(), ..Fields::default() };
        assert_eq!(reserved_to(&store, "a", &plain).await.unwrap(), Some(0));
        let _ = store.compare_and_set(&key, Expected::Absent, b"10").await.unwrap();
        assert_eq!(reserved_to(&store, "a", &plain).await.unwrap(), Some(10));
        assert_eq!(reserved_to(&store, "a", &record(striped)).await.unwrap(), Some(29));
        let other = NamespaceRecord::new(Definition::snowflake(Layout::TWITTER), Reach::Named);
        assert_eq!(reserved_to(&store, "a", &other).await.unwrap(), None);
    }
}
