//! The connection of a store is cut behind each byte of an answer, or as many of them as there is time for.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use snowmint_store::conformance::failing::{Account, Operation, Outcome};
use snowmint_store::{Store, StoreErrorKind};
use snowmint_test_servers::Proxy;
use tokio::time::{Instant, sleep, timeout};

use crate::support::PATIENCE;

/// No call may take longer: the limit of the stores, and time for a busy machine.
pub(crate) const BOUND: Duration = Duration::from_secs(15);

/// How many of the last bytes of an answer are cut one by one: there is what acknowledges it.
const LAST: usize = 24;

/// So many places to cut an answer of that many bytes: the beginning, the last bytes, and some between them.
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
        // As it is behind each cut: on a new connection that has served one load.
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
        // A read may be sent again; a write whose answer was cut is not known.
        let writes = matches!(operation, Operation::CompareAndSet | Operation::Add);
        assert_eq!(writes, saw(&outcomes, StoreErrorKind::OutcomeUnknown), "{operation:?}: {outcomes:?}");
    }
    account.check(&*store).await.unwrap();
    account.check(&*direct).await.unwrap();
    println!("{}: {cuts} cuts in {:?}", direct.describe(), started.elapsed());
}

/// A call in bounded time.
pub(crate) async fn call(account: &mut Account, store: &dyn Store, operation: Operation) -> Outcome {
    timeout(BOUND, account.call(store, operation)).await.expect("a call in bounded time").unwrap()
}

/// Reads until that succeeds.
pub(crate) async fn comes_back(account: &mut Account, store: &dyn Store) {
    let started = Instant::now();
    while !call(account, store, Operation::Load).await.is_acknowledged() {
        assert!(started.elapsed() < PATIENCE, "{} does not come back", store.describe());
        sleep(Duration::from_millis(5)).await;
    }
}

/// Whether one of the outcomes is of that kind.
pub(crate) fn saw(outcomes: &[Outcome], kind: StoreErrorKind) -> bool {
    outcomes.contains(&Outcome::Failed(kind))
}
