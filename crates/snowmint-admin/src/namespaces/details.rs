//! What an entry of the audit log says about a change of a namespace.

use std::fmt::Write as _;

use serde_json::Value;
use snowmint_cluster::namespace::{Definition, Fields};

use super::{SOURCES, Settings, known};

/// Maximum characters of one setting's value in an entry of the log, so that the entry has room for others.
pub(super) const SHOWN: usize = 60;

/// Describes a definition for an entry of the log: with its owner and description, and with the old values of
/// what changes.
pub(super) fn details_of(after: &Definition, before: Option<&Definition>) -> String {
    let shown = |value: &Value| {
        let text = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
        let mut shown: String = text.chars().take(SHOWN).collect::<String>().escape_debug().to_string();
        if text.chars().nth(SHOWN).is_some() {
            shown.push('…');
        }
        shown
    };
    let settings = |definition: &Definition| match serde_json::to_value(Fields::from(definition)) {
        Ok(Value::Object(settings)) => settings,
        _ => Settings::new(),
    };
    let mut details = after.to_string();
    let (new, old) = (settings(after), before.map(settings));
    for setting in ["owner", "description"] {
        if let Some(value) = new.get(setting) {
            // A write to a String never fails.
            let _ = write!(details, ", {setting} \"{}\"", shown(value));
        }
    }
    let Some(old) = old else { return details };
    let changed = known().filter(|setting| old.get(*setting) != new.get(*setting));
    let was: Vec<_> = changed
        .map(|setting| match old.get(setting) {
            // Their URLs may have passwords.
            Some(_) if setting == SOURCES => "other sources".to_owned(),
            Some(value) => format!("{setting} \"{}\"", shown(value)),
            None => format!("no {setting}"),
        })
        .collect();
    if !was.is_empty() {
        let _ = write!(details, "; before: {}", was.join(", "));
    }
    details
}
