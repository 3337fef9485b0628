//! What an id tells of itself: its fields, the instant it was made, and who made it.
//! Named values in one order, which every protocol writes in its own way.

use serde::Serialize;
use snowmint::utc::Utc;
use snowmint::{Field, Id, Layout, Parts};

/// One value of an inspected id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// A plain number.
    Number(u64),
    /// The id itself, which JSON writes as a string: JavaScript keeps only 53 bits of a number.
    #[serde(serialize_with = "as_text")]
    Id(Id),
    /// A text.
    Text(String),
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn as_text<S: serde::Serializer>(id: &Id, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(id)
}

/// An id taken apart.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// The id.
    pub id: Id,
    /// The layout it was read by.
    pub layout: Layout,
    /// Its fields.
    pub parts: Parts,
}

impl Inspection {
    /// The start of the tick it was made in, in unix milliseconds.
    pub const fn unix_ms(&self) -> u64 {
        self.layout.unix_ms(self.parts.timestamp)
    }

    /// Everything by name, in the order it is shown; of the layout's fields only those it has.
    pub fn values(&self) -> Vec<(&'static str, Value)> {
        let mut values = vec![
            ("id", Value::Id(self.id)),
            ("layout", Value::Text(self.layout.to_string())),
            ("timestamp", Value::Number(self.parts.timestamp.0)),
            ("unix_ms", Value::Number(self.unix_ms())),
            ("utc", Value::Text(Utc(self.unix_ms()).to_string())),
        ];
        for field in [Field::Datacenter, Field::Worker, Field::Generation, Field::Sequence] {
            if self.layout.width(field) > 0 {
                values.push((field.name(), Value::Number(self.parts.value(field))));
            }
        }
        values.push(("binary", Value::Text(self.binary())));
        values
    }

    /// The 64 bits, a blank before each field.
    fn binary(&self) -> String {
        use std::fmt::Write as _;
        let unused = usize::try_from(u64::BITS - self.layout.bits()).unwrap_or_default();
        let mut bits = "0".repeat(unused);
        for field in self.layout.fields() {
            let width = usize::try_from(self.layout.width(field)).unwrap_or_default();
            // A `String` takes whatever is written to it.
            let _ = write!(bits, " {:0width$b}", self.parts.value(field));
        }
        bits
    }
}

impl Serialize for Inspection {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.values())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inspect(layout: Layout, id: u64) -> Inspection {
        let id = Id::new(id).unwrap();
        Inspection { id, layout, parts: layout.split(id).unwrap() }
    }

    #[test]
    fn a_known_id_of_twitter() {
        let inspection = inspect(Layout::TWITTER, 1_541_815_603_606_036_480);
        assert_eq!(
            serde_json::to_string(&inspection).unwrap(),
            "{\"id\":\"1541815603606036480\",\
             \"layout\":\"time:41@1ms datacenter:5 worker:5 sequence:12 epoch:2010-11-04T01:42:54.657Z\",\
             \"timestamp\":367597485448,\"unix_ms\":1656432460105,\"utc\":\"2022-06-28T16:07:40.105Z\",\
             \"datacenter\":11,\"worker\":26,\"sequence\":0,\
             \"binary\":\"0 00101010110010110100001000111110110001000 01011 11010 000000000000\"}"
        );
    }

    #[test]
    fn only_the_fields_that_the_layout_has() {
        let layout: Layout = "time:31@1s worker:20 sequence:12 epoch:2024-01-01".parse().unwrap();
        let names: Vec<_> = inspect(layout, 1 << 40).values().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["id", "layout", "timestamp", "unix_ms", "utc", "worker", "sequence", "binary"]);
        let layout: Layout =
            "time:31@1s generation:2 worker:18 sequence:12 epoch:2024-01-01".parse().unwrap();
        assert!(inspect(layout, 1 << 40).values().iter().any(|(name, _)| *name == "generation"));
    }
}
