//! Ids of a namespace: what they are stands in the store, or is known to a running node.

use std::path::Path;

use snowmint::Layout;
use snowmint::error::Snippet;
use snowmint::hide::Hider;
use snowmint::inspect::{Inspection, cell};
use snowmint_cluster::NamespaceName;
use snowmint_cluster::namespace::Definition;

use crate::error::Failure;
use crate::hide_key;
use crate::target::TargetArgs;

/// A namespace whose ids are read.
pub(super) struct NamespaceReader {
    name: NamespaceName,
    definition: Definition,
    hider: Option<Hider>,
}

impl NamespaceReader {
    /// Reads the definition of a namespace.
    pub(super) fn find(
        name: &NamespaceName,
        hide_keys_file: Option<&Path>,
        target: &TargetArgs,
    ) -> Result<Self, Failure> {
        let settings = target.settings_of(name)?;
        let refuse = |why: String| Failure::flag("--namespace", why);
        // A record always has a layout, so this one is never used.
        let definition =
            settings.define_pinned(&Layout::TWITTER).map_err(|error| refuse(error.to_string()))?;
        let hider = match (definition.scheme.hide(), hide_keys_file) {
            (Some(hide), Some(file)) => {
                let keys = hide_key::read(file)?;
                let hider = keys.key(&hide.key).cloned();
                Some(hider.map_err(|error| Failure::flag("--hide-keys-file", error))?)
            }
            _ => None,
        };
        Ok(Self { name: name.clone(), definition, hider })
    }

    /// Reads a text of the namespace.
    pub(super) fn read(&self, text: &str) -> Result<Inspection, String> {
        let read = |text: &str| self.definition.inspect(text, &[], self.hider.as_ref());
        let read = read(text).or_else(|error| read(&cell(text)).map_err(|_| error));
        let (decoded, form) = read.map_err(|error| {
            format!("invalid id {} of namespace {}: {error}", Snippet::of(text), self.name)
        })?;
        Ok(Inspection::known(decoded, form))
    }
}
