//! The failures and warnings of admin operations on a store or through a node, with flags instead of the
//! settings that they name.

use serde::Deserialize;
use snowmint_admin::AdminError;
use snowmint_cluster::namespace::{Fields, Setting};

use crate::error::{Failure, report};

/// Request fields other than the settings of a namespace, and their flags. Messages name them in backticks.
const FLAGS: [(&str, &str); 6] = [
    ("above", "--above N"),
    ("force", "--force"),
    ("level", "LEVEL"),
    ("nodes", "--nodes"),
    ("pool", "--pool"),
    ("start_over", "--start-over"),
];
/// Why an operation failed: the problem document of a node, or what it would be for an operation on a store.
#[derive(Debug, Deserialize)]
pub(crate) struct AdminProblem {
    r#type: String,
    #[serde(skip)]
    pub(crate) status: u16,
    detail: String,
    setting: Option<String>,
    /// The namespaces that the token would have to cover.
    pub(crate) token_namespaces: Option<String>,
}

impl AdminProblem {
    /// Adds advice that only the command line can give.
    pub(crate) fn advising(self, advice: &str) -> Self {
        Self { detail: format!("{}; {advice}", self.detail), ..self }
    }

    /// Returns the name of its kind.
    pub(crate) fn kind(&self) -> &str {
        self.r#type.rsplit(':').next().unwrap_or_default()
    }

    /// Returns the failure, with flags instead of the settings that it names.
    pub(crate) fn failure(&self) -> Failure {
        let (detail, setting) = (&*self.detail, self.setting.as_deref());
        let text = match setting.and_then(|setting| Some((setting, detail.strip_prefix(setting)?))) {
            Some((setting, why)) => {
                let known = FLAGS.iter().find(|(name, _)| *name == setting);
                let flag = known.and_then(|(_, flag)| flag.split(' ').next()).map(ToOwned::to_owned);
                let flag = flag.unwrap_or_else(|| format!("--{}", flag_of(setting)));
                format!("{flag}{}", in_flags(why, Some(setting)))
            }
            None => in_flags(detail, None),
        };
        // These are temporary: the same command may succeed later.
        let is_temporary = ["changed", "in-use", "over-quota"].contains(&self.kind());
        if (400..500).contains(&self.status) && !is_temporary {
            Failure::usage(text)
        } else {
            Failure::runtime(text)
        }
    }
}

impl From<AdminError> for AdminProblem {
    fn from(error: AdminError) -> Self {
        let (kind, status) = error.kind().status();
        let setting =
            if let AdminError::Setting { setting, .. } = &error { Some((*setting).to_owned()) } else { None };
        let (r#type, detail) = (format!("urn:snowmint:{kind}"), error.answer());
        Self { r#type, status, detail, setting, token_namespaces: None }
    }
}

impl From<AdminError> for Failure {
    fn from(error: AdminError) -> Self {
        AdminProblem::from(error).failure()
    }
}

/// Returns the flag of a request field without the dashes in front.
fn flag_of(field: &str) -> String {
    let setting = Fields::SETTINGS.iter().find(|setting| setting.name == field);
    setting.map_or_else(|| field.replace('_', "-"), Setting::flag)
}

/// Returns a text with flags instead of the fields that it names in backticks, and instead of settings if it
/// is about one.
fn in_flags(text: &str, setting: Option<&str>) -> String {
    let settings = if setting.is_some() { Fields::SETTINGS } else { &[] };
    let settings = settings.iter().filter(|setting| setting.value_name.is_some());
    let settings = settings.map(|setting| (setting.name, format!("--{}", setting.flag())));
    let fields = FLAGS.iter().map(|(name, flag)| (*name, (*flag).to_owned()));
    fields
        .chain(settings)
        .fold(text.to_owned(), |text, (name, flag)| text.replace(&format!("`{name}`"), &flag))
}

/// Reports the warnings of an operation.
pub(crate) fn warn(warnings: &[String]) {
    for warning in warnings {
        report("warning", &in_flags(warning, None));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the failure text from a node equals that from a store. Method: one error, both ways.
    #[test]
    fn errors_name_flags() {
        let error =
            AdminError::Setting { setting: "sources", why: "set `above`, or omit `stripe`".to_owned() };
        let problem = AdminProblem {
            r#type: "urn:snowmint:bad-request".to_owned(),
            status: 400,
            detail: error.to_string(),
            setting: Some("sources".to_owned()),
            token_namespaces: None,
        };
        for failure in [Failure::from(error), problem.failure()] {
            let Failure::Usage(text) = failure else { panic!("{failure:?}") };
            assert_eq!(text, "--source: set --above N, or omit --stripe");
        }
        let held = AdminError::Held { worker: 7, holder: "a".to_owned(), until: "now".to_owned() };
        let Failure::Runtime(text) = Failure::from(held) else { panic!("a held worker is free later") };
        assert!(text.contains("add --force to stop"), "{text}");
        assert_eq!(
            in_flags("invalid setting `start` for scheme ulid", None),
            "invalid setting `start` for scheme ulid"
        );
    }
}
