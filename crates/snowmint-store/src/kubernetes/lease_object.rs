//! Lease objects: the name of a record's object, the JSON of a write, and the record in an answer.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{Key, Revision, Versioned};

/// The label of the objects of one store.
pub(super) const STORE: &str = "snowmint.dev/store";
const KEY: &str = "snowmint.dev/key";
/// The value if it is text, readable for an operator.
const TEXT: &str = "snowmint.dev/record";
/// The value if it is not text.
const BASE64: &str = "snowmint.dev/record-base64";
/// The version that a write replaced, so that every write changes the object.
const REPLACED: &str = "snowmint.dev/replaced";

/// The parts of a write.
pub(super) struct LeaseBody<'a> {
    pub(super) prefix: &'a str,
    pub(super) key: &'a Key,
    pub(super) value: &'a [u8],
}

impl LeaseBody<'_> {
    /// A new object.
    pub(super) fn create(&self, name: &str) -> Value {
        let mut body = self.parts();
        body["apiVersion"] = json!("coordination.k8s.io/v1");
        body["kind"] = json!("Lease");
        body["metadata"]["name"] = json!(name);
        // The API server reads a `null` in a map of strings as an empty string.
        for path in ["/metadata/annotations", "/spec"] {
            if let Some(Value::Object(fields)) = body.pointer_mut(path) {
                fields.retain(|_, value| !value.is_null());
            }
        }
        body
    }

    /// A merge patch: `null` removes the old fields of the record; fields of other programs stay.
    pub(super) fn replace(&self, revision: Revision) -> Value {
        let mut body = self.parts();
        body["metadata"]["resourceVersion"] = json!(revision.to_string());
        body["metadata"]["annotations"][REPLACED] = json!(revision.to_string());
        body
    }

    fn parts(&self) -> Value {
        let text = str::from_utf8(self.value).ok().filter(|it| !it.chars().any(char::is_control));
        let base64 = text.is_none().then(|| STANDARD.encode(self.value));
        json!({
            "metadata": {
                "labels": { STORE: self.prefix },
                "annotations": { KEY: self.key.as_str(), TEXT: text, BASE64: base64 },
            },
            "spec": { "holderIdentity": text.and_then(holder) },
        })
    }
}

/// Returns the holder in a lease record; `None` for other records.
fn holder(text: &str) -> Option<String> {
    let record: Value = serde_json::from_str(text).ok()?;
    record.get("holder")?.as_str().filter(|it| !it.is_empty()).map(ToOwned::to_owned)
}

/// A Lease in an answer, reduced to the needed fields.
#[derive(Deserialize)]
pub(super) struct LeaseObject {
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    resource_version: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

/// A page of a list.
#[derive(Deserialize)]
pub(super) struct LeaseList {
    pub(super) metadata: ListMetadata,
    pub(super) items: Vec<LeaseObject>,
}

#[derive(Deserialize)]
pub(super) struct ListMetadata {
    /// The token for the next page.
    #[serde(rename = "continue")]
    pub(super) next: Option<String>,
}

impl LeaseObject {
    pub(super) fn name(&self) -> &str {
        &self.metadata.name
    }

    /// Returns the version that the server assigned, or a text about what is wrong with it.
    pub(super) fn revision(&self) -> Result<Revision, String> {
        let version = &self.metadata.resource_version;
        // Accept digits only: `parse` would also accept a `+`.
        let revision = version.bytes().all(|it| it.is_ascii_digit()).then(|| version.parse().ok());
        revision
            .flatten()
            .map(Revision)
            .ok_or_else(|| format!("invalid resourceVersion `{version}`: expected a number that grows"))
    }

    /// Returns the record, or a text about what is wrong with it.
    pub(super) fn into_record(self) -> Result<(Key, Versioned), String> {
        let revision = self.revision()?;
        let Metadata { name, mut annotations, .. } = self.metadata;
        let invalid = |what: &str| format!("the Lease `{name}` {what}; check that Snowmint created it");
        let key = annotations.remove(KEY).ok_or_else(|| invalid("has no annotation snowmint.dev/key"))?;
        let key = Key::new(key).map_err(|error| invalid(&format!("has a bad key: {error}")))?;
        // An API server stores a `null`, which earlier versions sent for the unused one, as an empty string.
        let base64 = annotations.remove(BASE64).filter(|base64| !base64.is_empty());
        let text = annotations.remove(TEXT).filter(|text| !text.is_empty() || base64.is_none());
        let value = match (text, base64) {
            (Some(text), None) => text.into_bytes(),
            (None, Some(base64)) => {
                STANDARD.decode(base64).map_err(|_| invalid("has a record with invalid base64"))?
            }
            _ => return Err(invalid("has no annotation snowmint.dev/record, or two")),
        };
        Ok((key, Versioned { value, revision }))
    }
}

/// The maximum bytes of a prefix, so that the name of the longest key fits 253 bytes, the limit of
/// Kubernetes: the prefix, 200 bytes of key, 16 of hash, and two `-`.
pub(super) const LONGEST_PREFIX: usize = 35;

/// Returns the name of the object for a key: `snowmint-workers-pool-7-af63bd4c8601b7df`.
///
/// Names are DNS-1123 subdomains, which have no upper case and few other characters. The name is for people,
/// and the hash at its end makes it unique; the key itself is in an annotation.
pub(super) fn object_name(prefix: &str, key: &Key) -> String {
    let readable = |it: char| if it.is_ascii_alphanumeric() { it.to_ascii_lowercase() } else { '-' };
    let shown: String = key.as_str().chars().map(readable).collect();
    format!("{prefix}-{shown}-{:016x}", hash(key.as_str().as_bytes()))
}

/// 64-bit FNV-1a. A short hash is enough: two keys with one name are detected when a record is read.
fn hash(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(annotations: &Value, version: &str) -> Result<(Key, Versioned), String> {
        let lease =
            json!({"metadata": {"name": "n", "resourceVersion": version, "annotations": annotations}});
        serde_json::from_value::<LeaseObject>(lease).unwrap().into_record()
    }

    #[test]
    fn a_value_comes_back_from_its_object() {
        let key = Key::new("workers/a/1").unwrap();
        let values: [&[u8]; 6] =
            [b"", b"{\"holder\":\"web-1\"}", b"\0", b"\xff", "ü\u{fffd}".as_bytes(), b"a\nb"];
        for value in values {
            let body = LeaseBody { prefix: "snowmint", key: &key, value };
            let created = body.create("n");
            assert!(!created.to_string().contains("null"), "{created}");
            let (found, record) = lease(&created["metadata"]["annotations"], "7").unwrap();
            assert_eq!((found, &*record.value, record.revision), (key.clone(), value, Revision(7)));
        }
    }

    #[test]
    fn a_lease_record_shows_its_holder() {
        let key = Key::new("a").unwrap();
        let holder = |value| {
            LeaseBody { prefix: "p", key: &key, value }.replace(Revision(1))["spec"]["holderIdentity"].clone()
        };
        assert_eq!(holder(br#"{"holder":"web-1","until":1}"#), json!("web-1"));
        for none in [&b"{}"[..], b"", b"\xff", br#"{"holder":""}"#, br#"{"holder":1}"#, b"[1]"] {
            assert_eq!(holder(none), Value::Null);
        }
    }

    #[test]
    fn what_is_no_record_is_told() {
        let good = json!({KEY: "a", TEXT: "v"});
        for version in ["", "1.5", "+1", "-1", "abc", "18446744073709551616"] {
            assert!(lease(&good, version).unwrap_err().contains("expected a number"), "{version}");
        }
        for bad in
            [json!({}), json!({KEY: "a"}), json!({KEY: "a b", TEXT: "v"}), json!({KEY: "a", BASE64: "?"})]
        {
            assert!(lease(&bad, "1").unwrap_err().contains("check that Snowmint created it"), "{bad}");
        }
        assert!(lease(&json!({KEY: "a", TEXT: "v", BASE64: "dg=="}), "1").is_err());
        for (text, base64, value) in [("v", "", "v"), ("", "dg==", "v"), ("", "", "")] {
            let (_, record) = lease(&json!({KEY: "a", TEXT: text, BASE64: base64}), "1").unwrap();
            assert_eq!(record.value, value.as_bytes());
        }
    }

    #[test]
    fn the_hash_is_fnv_1a() {
        // http://www.isthe.com/chongo/src/fnv/test_fnv.c
        assert_eq!(hash(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(hash(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(hash(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn names_are_valid_and_apart() {
        let long = "K".repeat(200);
        let texts = ["a", "A", "a/a", "a-a", "a.a", "..", "@", "_", &long];
        let mut seen = std::collections::BTreeSet::new();
        for text in texts {
            let name = object_name(&"p".repeat(LONGEST_PREFIX), &Key::new(text).unwrap());
            assert!(name.len() <= 253, "{name}");
            assert!(name.bytes().all(|it| matches!(it, b'a'..=b'z' | b'0'..=b'9' | b'-')), "{name}");
            assert!(seen.insert(name), "{text}");
        }
    }
}
