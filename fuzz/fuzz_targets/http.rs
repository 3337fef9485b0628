//! Path and query of a request lead to a route or a problem document, whatever bytes and escapes they
//! contain.
#![cfg_attr(fuzzing, no_main)]

use snowmint_server::mint::parse_count;

snowmint_fuzz::fuzz_target!(|target: &str| {
    let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
    let read = snowmint_server::http_reads_route(path, query);
    assert!(!read || path.starts_with('/'), "a route without a path: {path:?}");
    let _ = parse_count(path.as_bytes());
});
