//! Host names in a static build with glibc.
//!
//! glibc resolves names through the services in `/etc/nsswitch.conf`. Of these, `files` (/etc/hosts) and
//! `dns` (/etc/resolv.conf) are part of glibc since 2.34. Any other, such as `resolve` or `mymachines`, is a
//! shared library of the system, which fits the system's glibc but not the one linked in here: loading it can
//! crash the process. So a static build uses the two that are linked in, whatever the file says.

#![expect(unsafe_code, reason = "this interface of glibc has no safe form")]

use std::ffi::{CStr, c_char, c_int};

unsafe extern "C" {
    fn __nss_configure_lookup(database: *const c_char, services: *const c_char) -> c_int;
}

/// The databases that the process reads, with the services for each.
const SERVICES: [(&CStr, &CStr); 3] = [(c"hosts", c"files dns"), (c"passwd", c"files"), (c"group", c"files")];

/// Makes glibc use only services that are linked in. Call it first in `main`, before another thread starts.
pub(crate) fn use_built_in_services() {
    for (database, services) in SERVICES {
        // It fails only for an unknown database or without memory; then nsswitch.conf applies.
        // SAFETY: both are C strings with static lifetime, and no other thread runs yet.
        let _ = unsafe { __nss_configure_lookup(database.as_ptr(), services.as_ptr()) };
    }
}
