//! Namespaces: the names under which ids are asked for, each with its scheme, its layout or counter, and its text form.
//! Each is pinned in the store: two layouts or two counters in one namespace can produce duplicates.

mod change;
mod counter_source;
mod definition;
mod fields;
mod file;
mod inspect;
mod name;
mod numbers;
mod record;
pub mod registry;
mod text_form;

use snowmint::Layout;
use snowmint_store::Store;

pub use change::{ChangeError, TextChangeError};
pub use counter_source::{CounterSource, CounterSourceError};
pub use definition::{Definition, DefinitionError, NumberSource, Scheme, SegmentScheme, SizeBounds};
pub use fields::{Fields, ModeWord};
pub use file::{AutoCreate, MAX_NAMESPACES, NamespaceFile, NamespaceFileError};
pub use inspect::InspectError;
pub use name::{NamespaceName, NamespaceNameError};
pub use numbers::{Numbers, NumbersError};
pub use record::{NamespaceRecord, Reach};
pub use registry::NamespaceError;
pub use text_form::{Day, TextForm, TextFormError};

impl Definition {
    /// 64-bit ids of a layout, by the rule and the sequence start of the service, written as numbers.
    pub const fn snowflake(layout: Layout) -> Self {
        Self { scheme: Scheme::Snowflake { layout, rule: None, sequence_start: None }, text: None }
    }
}

/// Pins a namespace to a layout, or checks that it is pinned to this one, and waits until that has settled: for as long as the
/// store [may lose](Store::may_lose) it.
///
/// # Errors
///
/// [`NamespaceError::Mismatch`] with both texts when another layout or scheme is pinned.
pub async fn pin(store: &dyn Store, name: &NamespaceName, layout: &Layout) -> Result<(), NamespaceError> {
    loop {
        let pinned = registry::pin(store, name, &Definition::snowflake(*layout)).await?;
        match registry::settle(store, name, &pinned).await {
            // What is there now decides.
            Err(NamespaceError::Unsettled { .. }) => {}
            settled => return settled,
        }
    }
}
