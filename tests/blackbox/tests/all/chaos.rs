//! Four servers on one file are killed and paused and their clocks jump, while clients draw millions of ids.
//!
//! `SNOWMINT_SEED=n` repeats a schedule of faults; their timing still depends on the machine.

mod world;

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use snowmint_test_servers::snowmint::chaos::{CLOCK_SLACK_MS, Harvest, Load, draw_while};
use snowmint_test_servers::snowmint::{self, SplitMix64};
use snowmint_test_servers::time;

use world::{Faults, World};

const SERVERS: usize = 4;
const CLIENTS: usize = 12;

/// A run under faults.
struct Plan {
    /// The name of its results.
    name: &'static str,
    /// Number of ids to draw.
    ids: usize,
    /// Target rate of each client: low enough that faults have time to strike and the machine is not
    /// saturated.
    ids_a_second: u64,
    /// The servers' layout; its timestamp is Twitter's.
    layout: &'static str,
    /// The servers' window.
    window: Duration,
    /// Whether a server gets a new name at each start, like a pod: then it finds no record of its own.
    new_names: bool,
    /// The longest time between two faults.
    between_faults: Duration,
    /// Smallest number of faults of each kind.
    least_faults: u32,
}

/// Goal: no duplicates under every fault at once, with the defaults of the service: 32 workers, so that a
/// server finds one at once after a restart.
#[test]
fn two_million_ids_through_kills_pauses_and_stepped_clocks() {
    run(&Plan {
        name: "chaos",
        ids: 2_000_000,
        ids_a_second: 16_000,
        layout: "twitter",
        window: Duration::from_secs(3),
        new_names: false,
        between_faults: Duration::from_millis(500),
        least_faults: 5,
    });
}

/// Goal: the same in the hardest case. Method: four workers for four servers, so that every restart and every
/// end of a pause takes a worker that another server had a moment ago, and may think it still has.
#[test]
fn a_million_ids_where_workers_change_hands_all_the_time() {
    run(&Plan {
        name: "chaos-scarce",
        ids: 1_000_000,
        ids_a_second: 9_000,
        layout: "time:41@1ms datacenter:8 worker:2 sequence:12 epoch:2010-11-04T01:42:54.657Z",
        window: Duration::from_secs(1),
        new_names: true,
        between_faults: Duration::from_millis(200),
        least_faults: 10,
    });
}

/// One seed decides which fault strikes which server. Clients check the order of ids as they arrive; the end
/// of the test looks for duplicates over all ids.
fn run(plan: &Plan) {
    // The two tests of this file must not disturb each other.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let seed = SplitMix64::seed();
    println!("SNOWMINT_SEED={seed}");
    let mut random = SplitMix64::new(seed);
    let folder = tempfile::tempdir().unwrap();
    let began = time::now();
    let began_unix_ms = time::unix_ms();

    let mut world = World::start(folder.path(), plan);
    let addresses = world.addresses();
    let load = Load { clients: CLIENTS, numbers: None, ids_a_second: plan.ids_a_second };
    let mut harvest = draw_while(&addresses, load, &mut random, |random, drawn| {
        while drawn.ids() < plan.ids || !world.had_enough() {
            let state = (drawn.ids(), world.faults());
            assert!(began.elapsed() < Duration::from_mins(2), "ids and faults so far: {state:?}");
            world.one_more_fault(random);
        }
    });
    let shares = harvest.shares();
    let (faults, ids) = world.end();
    harvest.ids.append(ids);
    let text = report(plan, seed, &faults, &harvest, &shares, began.elapsed());

    let made = harvest.ids.made_within().unwrap();
    assert!(harvest.ids.len() >= plan.ids);
    assert!(
        *made.start() + CLOCK_SLACK_MS > began_unix_ms && *made.end() < time::unix_ms() + CLOCK_SLACK_MS,
        "an hour's step shows in the ids: made {made:?}, the test began at {began_unix_ms}"
    );
    harvest.ids.assert_unique();
    snowmint::publish(plan.name, &text);
}

fn report(
    plan: &Plan,
    seed: u64,
    faults: &Faults,
    harvest: &Harvest,
    shares: &str,
    took: Duration,
) -> String {
    let Plan { layout, window, .. } = plan;
    let mut times = faults.first_ids.clone();
    times.sort_unstable();
    format!(
        "{SERVERS} servers on one SQLite file, {CLIENTS} clients, layout {layout}, window {window:?}, seed {seed}\n\
         ids {}, duplicates 0, in {:.1} s\n\
         restarts after SIGKILL {}, start to first id: median {:.0?}, worst {:.0?}\n\
         pauses beyond the window {}, of these {} while the file was locked for writing\n\
         first answers after a pause: {} with fresh ids, {} errors\n\
         clock steps by an hour or two {}, seen by servers {}\n{shares}",
        harvest.ids.len(),
        took.as_secs_f64(),
        times.len(),
        times[times.len() / 2],
        times[times.len() - 1],
        faults.pauses,
        faults.pauses_with_lock,
        faults.fresh_after_pause,
        faults.errors_after_pause,
        faults.steps,
        faults.steps_seen,
    )
}
