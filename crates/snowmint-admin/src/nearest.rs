//! The most similar known word, which errors about unknown names suggest.

use snowmint::error::Snippet;

/// Returns the error for an unknown name, such as "unknown key", which suggests the most similar known name.
pub fn unknown_name<'a>(what: &str, name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    let hint = match nearest(name, known.iter().copied()) {
        Some(nearest) => format!("did you mean `{nearest}`?"),
        None => format!("expected {}", known.join(", ")),
    };
    format!("unknown {what} {}: {hint}", Snippet::of(name))
}

/// Returns the message of serde for an unknown field with the most similar key instead of all keys; any other
/// message as it is.
pub fn with_nearest_field(message: &str) -> String {
    let parts = || {
        let (before, rest) = message.split_once("unknown field `")?;
        let (key, known) = rest.split_once("`, expected ")?;
        // The known names are in backticks.
        let nearest = nearest(key, known.split('`').skip(1).step_by(2))?;
        Some(format!("{before}unknown field `{key}`: did you mean `{nearest}`?"))
    };
    parts().unwrap_or_else(|| message.to_owned())
}

/// Returns the most similar known word, if any is similar.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|known| (strsim::jaro_winkler(word, known), known))
        // A letter that the known word begins with or contains makes a short word alike, but not similar.
        .filter(|(likeness, known)| {
            let longer = word.chars().count().max(known.chars().count());
            *likeness > 0.7 && strsim::osa_distance(word, known) * 2 <= longer
        })
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
        .map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: an unknown key of a namespace names the nearest key, and a word that is far from every key names
    /// none.
    #[test]
    fn only_similar_keys_are_suggested() {
        let of = |key: &str| {
            with_nearest_field(&format!(
                "line 2: unknown field `{key}`, expected one of `scheme`, `layout`, `text`"
            ))
        };
        assert_eq!(of("schema"), "line 2: unknown field `schema`: did you mean `scheme`?");
        assert_eq!(of("zzz"), "line 2: unknown field `zzz`, expected one of `scheme`, `layout`, `text`");
        assert_eq!(with_nearest_field("another error"), "another error");
        assert_eq!(nearest("x", ["max_skew"]), None);
        assert_eq!(nearest("widnow", ["window", "http"]), Some("window"));
    }
}
