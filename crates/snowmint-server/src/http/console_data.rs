//! What the console draws, as JSON for every program: each reading of a text with its bits and text forms,
//! the named layouts, the properties of any layout, and what this server serves.

use hyper::Response;
use serde::Serialize;
use serde_json::{Map, Value, json};
use snowmint::codec::Digits;
use snowmint::error::Snippet;
use snowmint::field::Field;
use snowmint::inspect::{Candidate, Decoded, Inspection};
use snowmint::scheme::SchemeField;
use snowmint::utc::Utc;
use snowmint::{Clock as _, Id, Layout, WallClock};
use snowmint_cluster::namespace::Scheme;

use crate::access::{Identity, Right};
use crate::http::response::{Body, Problem, json};
use crate::layout_view::{LayoutAdvice, PresetView};
use crate::limits::fleet::NAMESPACES;
use crate::mint::{Backend, MintError, Namespace};
use crate::state::ServerState;

/// A field of a reading. The value is a text: JavaScript keeps only 53 bits of a number.
#[derive(Serialize)]
struct FieldReading {
    name: &'static str,
    bits: u32,
    shift: u32,
    value: String,
}

/// Answers with all readings of a text.
pub(super) fn readings(text: &[u8], inspection: &Inspection) -> Result<Response<Body>, Problem> {
    let likeliest = [inspection.likeliest().clone()];
    let candidates = if inspection.candidates().is_empty() { &likeliest } else { inspection.candidates() };
    let readings: Vec<Value> = candidates.iter().map(reading).collect();
    let mut all = json!({ "text": String::from_utf8_lossy(text), "readings": readings });
    for (name, texts) in [("notes", inspection.notes().to_vec()), ("near_ties", inspection.near_ties())] {
        if !texts.is_empty() {
            all[name] = texts.into();
        }
    }
    json(&all)
}

fn reading(candidate: &Candidate) -> Value {
    let decoded = &candidate.decoded;
    let mut reading = Map::new();
    let mut add = |name: &str, value: Value| reading.insert(name.to_owned(), value);
    add("name", decoded.name().into());
    add("form", candidate.form.into());
    if let Some(likelihood) = candidate.likelihood {
        add("likelihood", ((likelihood * 1000.0).round() / 1000.0).into());
    }
    if !candidate.namespaces.is_empty() {
        add("namespaces", candidate.namespaces.clone().into());
    }
    if let Some(unix_ms) = decoded.unix_ms() {
        add("unix_ms", unix_ms.into());
        add("utc", Utc(unix_ms).to_string().into());
    }
    match decoded {
        Decoded::Snowflake { id, layout, parts } => {
            let field = |field: Field| FieldReading {
                name: field.name(),
                bits: layout.width(field),
                shift: layout.shift(field),
                value: parts.value(field).to_string(),
            };
            add("id", id.to_string().into());
            add("width", 64.into());
            add("layout", layout.to_string().into());
            add("fields", json!(layout.fields().map(field).collect::<Vec<_>>()));
            add("texts", texts(*id));
        }
        Decoded::Scheme(id) => {
            let digits = 2 * id.scheme().byte_len();
            let hex = format!("{:0digits$x}", id.as_u128());
            reading.extend(wide(id.scheme().name(), id.to_string(), hex, id.values()));
        }
        Decoded::Foreign(id) => {
            reading.extend(wide(id.kind().name(), id.to_string(), id.hex(), id.values()));
        }
        Decoded::Number(id) => {
            add("id", id.to_string().into());
            add("width", 64.into());
            add("texts", texts(*id));
        }
        // A reading of an unknown kind has only its name and instant.
        _ => {}
    }
    Value::Object(reading)
}

/// Returns what is shown of an id with fields of its own.
fn wide(
    scheme: &'static str,
    id: String,
    hex: String,
    values: impl Iterator<Item = (&'static SchemeField, u128)>,
) -> Map<String, Value> {
    let field = |(field, value): (&SchemeField, u128)| FieldReading {
        name: field.name,
        bits: field.width,
        shift: field.shift,
        value: field.show(value).to_string(),
    };
    let mut shown = Map::new();
    let mut add = |name: &str, value: Value| shown.insert(name.to_owned(), value);
    add("width", (4 * hex.len()).into());
    add("scheme", scheme.into());
    add("fields", json!(values.map(field).collect::<Vec<_>>()));
    add("texts", json!([{"form": scheme, "text": id}, {"form": "hex", "text": hex}]));
    add("id", id.into());
    add("hex", hex.into());
    shown
}

/// Returns the id in every text form that has a name.
fn texts(id: Id) -> Value {
    let text = |digits: &Digits| json!({"form": digits.name(), "text": digits.encode(id).as_str()});
    Value::Array(Digits::NAMED.iter().map(text).collect())
}

/// Answers with the named layouts.
pub(super) fn layouts(identity: &Identity) -> Result<Response<Body>, Problem> {
    identity.may_somewhere(Right::Inspect)?;
    json(&json!({ "layouts": PresetView::all(WallClock.unix_ms()) }))
}

/// Answers with the properties of a layout.
pub(super) fn layout(identity: &Identity, spec: Option<&[u8]>) -> Result<Response<Body>, Problem> {
    identity.may_somewhere(Right::Inspect)?;
    let spec = String::from_utf8_lossy(spec.unwrap_or_default());
    let layout: Layout = spec
        .parse()
        .map_err(|why| MintError::BadLayout { layout: Snippet::of(&spec), why: Box::new(why) })?;
    json(&LayoutAdvice::of(&layout, WallClock.unix_ms()))
}

#[derive(Serialize)]
struct ServerInfo<'a> {
    version: &'static str,
    /// The layout of namespaces without one of their own.
    layout: String,
    datacenter: u32,
    /// The identity of the store.
    #[serde(skip_serializing_if = "Option::is_none")]
    store: Option<&'a str>,
    /// The address of the Redis protocol: `host:port`, or `unix:` and a path.
    #[serde(skip_serializing_if = "Option::is_none")]
    resp: Option<&'a str>,
    /// Whether clients need tokens.
    tokens: bool,
    /// Whether this client may administer the node.
    admin: bool,
    /// The namespaces that the client may know, up to 1,000.
    namespaces: Vec<NamespaceInfo<'a>>,
    /// The number of namespaces that `namespaces` leaves out.
    more_namespaces: usize,
}

#[derive(Serialize)]
struct NamespaceInfo<'a> {
    name: &'a str,
    scheme: &'static str,
    /// Its definition in one line.
    summary: String,
    /// Whether its ids are texts, not numbers of 63 bits.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    texts: bool,
    /// Whether it makes ids on this node.
    available: bool,
}

impl<'a> NamespaceInfo<'a> {
    fn of(namespace: &'a Namespace) -> Self {
        let definition = namespace.definition();
        Self {
            name: namespace.name().as_str(),
            scheme: definition.scheme.name(),
            summary: definition.to_string(),
            texts: definition.text.is_some() || matches!(definition.scheme, Scheme::Wide(_)),
            available: !matches!(namespace.backend(), Backend::Unavailable(_)),
        }
    }
}

/// Answers with what this server serves to a client, of all its namespaces or of one.
pub(super) fn server(
    state: &ServerState,
    identity: &Identity,
    namespace: Option<&[u8]>,
) -> Result<Response<Body>, Problem> {
    identity.verify()?;
    let table = state.mint.table();
    let is_wanted = |name: &[u8]| namespace.is_none_or(|wanted| wanted == name) && identity.sees(name);
    let wanted = || table.namespaces().iter().filter(|it| is_wanted(it.name().as_str().as_bytes()));
    json(&ServerInfo {
        version: env!("CARGO_PKG_VERSION"),
        layout: state.mint.pool().layout().to_string(),
        datacenter: state.mint.datacenter().0,
        store: state.store.text(),
        resp: state.resp.as_deref(),
        tokens: state.settings.access.is_some(),
        admin: state.settings.admin.is_some() && identity.may_everywhere(Right::Admin).is_ok(),
        namespaces: wanted().take(NAMESPACES).map(|it| NamespaceInfo::of(it)).collect(),
        more_namespaces: wanted().count().saturating_sub(NAMESPACES),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_785_542_400_000;

    fn all(text: &str) -> Vec<Value> {
        Inspection::of_text(text, Vec::new(), NOW).unwrap().candidates().iter().map(reading).collect()
    }

    /// Goal: each reading shows its own id: the same text is a different id in each text form.
    #[test]
    fn each_reading_has_its_own_id_bits_and_texts() {
        let readings = all("1541815603606036480");
        let first = &readings[0];
        assert_eq!((&first["name"], &first["id"]), (&"twitter".into(), &"1541815603606036480".into()));
        assert_eq!(
            first["fields"],
            json!([
                {"name": "time", "bits": 41, "shift": 22, "value": "367597485448"},
                {"name": "datacenter", "bits": 5, "shift": 17, "value": "11"},
                {"name": "worker", "bits": 5, "shift": 12, "value": "26"},
                {"name": "sequence", "bits": 12, "shift": 0, "value": "0"},
            ])
        );
        assert!(readings.len() > 3, "{readings:?}");
        let texts = first["texts"].as_array().unwrap();
        assert!(texts.contains(&json!({"form": "base62", "text": "1ptWyK4WgZU"})), "{texts:?}");
        let of_a_word = all("4aaW4SzAyQK");
        let mut forms = Vec::new();
        for reading in &of_a_word {
            let texts = reading["texts"].as_array().unwrap();
            let own = texts.iter().find(|it| it["form"] == reading["form"]).unwrap();
            assert_eq!(own["text"], "4aaW4SzAyQK", "{reading}");
            forms.push(reading["form"].as_str().unwrap());
        }
        assert!(forms.contains(&"base58") && forms.contains(&"base62"), "{forms:?}");
    }

    #[test]
    fn a_scheme_has_its_bits() {
        for (text, name, width) in [
            ("01ARZ3NDEKTSV4RRFFQ69G5FAV", "ulid", 128),
            ("0ujtsYcgvSTl8PAuAdqWYSMnLOv", "ksuid", 160),
            ("3laulgolrfz2f", "tid", 64),
            ("prefix_01h2xcejqtf2nbrexx3vqjhp41", "typeid", 128),
        ] {
            let read = &all(text)[0];
            assert_eq!(
                (&read["name"], &read["width"], &read["id"]),
                (&name.into(), &width.into(), &text.into())
            );
            let bits: u64 =
                read["fields"].as_array().unwrap().iter().map(|it| it["bits"].as_u64().unwrap()).sum();
            assert_eq!(
                (bits, read["hex"].as_str().unwrap().len()),
                (width, usize::try_from(width / 4).unwrap())
            );
        }
    }
}
