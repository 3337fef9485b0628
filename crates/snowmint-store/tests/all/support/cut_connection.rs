//! Cuts the connection of a store after each byte of an answer, or after as many bytes as there is time for.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use snowmint_store::conformance::acknowledged::{Account, CallOutcome, Operation};
use snowmint_store::{Store, StoreErrorKind};
use snowmint_test_servers::Proxy;
use tokio::time::{Instant, sleep, timeout};

use crate::support::PATIENCE;

/// The limit for a call: that of the stores, plus time for a busy machine.
pub(crate) const BOUND: Duration = Duration::from_secs(15);

/// Number of bytes at the end of an answer after which each cut is tried: they contain the acknowledgement.
const LAST: usize = 24;

/// Returns the bytes of an answer after which to cut: at the beginning, all near the end, and some between.
pub(crate) fn places(bytes: usize, most: usize) -> BTreeSet<usize> {
    let tail = LAST.min(most / 2).min(bytes);
    let rest = most - tail;
    let spread = (0..rest).map(|nth| nth * (bytes - tail) / rest);
    spread.chain(bytes - tail..bytes).collect()
}

/// Cuts the answer to each operation.
pub(crate) async fn cut_store(store: Arc<dyn Store>, direct: Arc<dyn Store>, proxy: &Proxy, most: usize) {
    let started = Instant::now();
    let mut account = Account::new();
    let mut cuts = 0;
    for operation in Operation::ALL {
        let mut outcomes = Vec::new();
        // The state for each cut: a new connection that has served one load.
        proxy.cut();
        comes_back(&mut account, &*store).await;
        let before = proxy.answered();
        assert!(call(&mut account, &*store, operation).await.is_acknowledged());
        for bytes in places(proxy.answered() - before, most) {
            proxy.cut_answers_after(bytes);
            outcomes.push(call(&mut account, &*store, operation).await);
            proxy.pass_answers();
            cuts += 1;
            comes_back(&mut account, &*store).await;
        }
        // A read may be sent again; the outcome of a write whose answer was cut is unknown.
        let writes = matches!(operation, Operation::CompareAndSet | Operation::Add);
        assert_eq!(writes, saw(&outcomes, StoreErrorKind::OutcomeUnknown), "{operation:?}: {outcomes:?}");
    }
    account.check(&*store).await.unwrap();
    account.check(&*direct).await.unwrap();
    println!("{}: {cuts} cuts in {:?}", direct.describe(), started.elapsed());
}

/// Makes a call, which must end within the limit.
pub(crate) async fn call(account: &mut Account, store: &dyn Store, operation: Operation) -> CallOutcome {
    timeout(BOUND, account.call(store, operation)).await.expect("a call in bounded time").unwrap()
}

/// Reads until a read succeeds.
pub(crate) async fn comes_back(account: &mut Account, store: &dyn Store) {
    let started = Instant::now();
    while !call(account, store, Operation::Load).await.is_acknowledged() {
        assert!(started.elapsed() < PATIENCE, "{} does not come back", store.describe());
        sleep(Duration::from_millis(5)).await;
    }
}

/// Returns whether one of the outcomes is of that kind.
pub(crate) fn saw(outcomes: &[CallOutcome], kind: StoreErrorKind) -> bool {
    outcomes.contains(&CallOutcome::Failed(kind))
}
