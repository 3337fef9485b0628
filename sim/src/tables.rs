//! `snowmint-sim scale`: large fleets on one store, as Markdown tables.

use std::fmt::Display;
use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use clap::Args;
use snowmint_sim::{Cost, Cut, Fleet, FleetScenario, GivenUp, Outage, Rest, StoreSpeed, Waits};

const STORES: [StoreSpeed; 2] = [StoreSpeed::ETCD, StoreSpeed::POSTGRES];
/// The outage of every fleet, in milliseconds.
const OUTAGE_MS: u64 = 60_000;
const DAY_MS: u64 = 86_400_000;
/// The fleet of the region that is cut off for a day: a quarter of its nodes are in this region. Each node
/// behaves alike, so a larger one only takes longer.
const REGIONS: FleetScenario = FleetScenario {
    seed: 0,
    nodes: 1_000,
    window_ms: 60_000,
    store: StoreSpeed::ETCD,
    given_up: GivenUp::Dropped,
};

/// Simulates large fleets on one store that executes a limited number of calls a second.
#[derive(Args, Clone, Debug)]
pub(crate) struct ScaleArguments {
    /// The seed.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Numbers of nodes.
    #[arg(long, value_delimiter = ',', default_values_t = [10_000, 100_000])]
    nodes: Vec<u32>,
    /// Windows, in seconds.
    #[arg(long, value_delimiter = ',', default_values_t = [10, 60, 300])]
    windows: Vec<u64>,
    /// The stores.
    #[arg(
        long,
        value_parser = STORES.map(|store| store.name),
        value_delimiter = ',',
        default_values = STORES.map(|store| store.name)
    )]
    stores: Vec<String>,
    /// Writes a second of the store instead of the measured ones.
    #[arg(long)]
    writes: Option<u64>,
    /// Reads a second of the store instead of the measured ones.
    #[arg(long)]
    reads: Option<u64>,
    /// Also cut off a region for a day, which takes minutes.
    #[arg(long)]
    day: bool,
}

impl ScaleArguments {
    fn scenarios(&self) -> Vec<FleetScenario> {
        let mut all = Vec::new();
        for store in STORES.into_iter().filter(|store| self.stores.iter().any(|name| name == store.name)) {
            let writes_per_second = self.writes.unwrap_or(store.writes_per_second);
            let reads_per_second = self.reads.unwrap_or(store.reads_per_second);
            let store = StoreSpeed { writes_per_second, reads_per_second, ..store };
            for &nodes in &self.nodes {
                for &seconds in &self.windows {
                    for given_up in [GivenUp::Dropped, GivenUp::Executed] {
                        let window_ms = seconds * 1_000;
                        all.push(FleetScenario { seed: self.seed, nodes, window_ms, store, given_up });
                    }
                }
            }
        }
        all
    }
}

/// Returns whether the store bears the renewals, and a fifth more for everything else.
const fn fits(scenario: &FleetScenario) -> bool {
    scenario.renewals_per_second() * 5 <= scenario.store.writes_per_second * 4
}

/// What happens to a fleet, in this order.
struct Story {
    scenario: FleetScenario,
    start: Waits,
    rest: Rest,
    outages: Vec<(Cut, Outage, Rest)>,
    restart: Waits,
}

impl Story {
    fn of(scenario: FleetScenario) -> Self {
        let rest_ms = 3 * scenario.window_ms;
        let mut fleet = Fleet::new(scenario);
        let start = fleet.start();
        let rest = fleet.rest(rest_ms);
        let outages = [Cut::Refused, Cut::Unanswered].map(|cut| {
            let outage = fleet.cut_off(0..scenario.nodes, cut, OUTAGE_MS);
            (cut, outage, fleet.rest(rest_ms))
        });
        Self { scenario, start, rest, outages: outages.into(), restart: fleet.start() }
    }

    fn costs(&self) -> impl Iterator<Item = &Cost> {
        let outages = self.outages.iter().flat_map(|(_, outage, rest)| [&outage.recovery.cost, &rest.cost]);
        [&self.start.cost, &self.rest.cost, &self.restart.cost].into_iter().chain(outages)
    }
}

/// Prints the tables. Returns whether no two nodes shared a worker.
pub(crate) fn print(arguments: &ScaleArguments) -> bool {
    let (fitting, others): (Vec<_>, Vec<_>) = arguments.scenarios().into_iter().partition(fits);
    let stories = in_parallel(&fitting, Story::of);
    let starts = ["half after", "99 % after", "all after", "without a lease"];
    let costs = ["reads a node", "writes a node", "conflicts", "timeouts", "longest queue"];
    head("All nodes start at once", &[&FLEET[..], &["start"], &starts, &costs].concat());
    for story in &stories {
        for (name, start) in [("first", &story.start), ("after a crash of all", &story.restart)] {
            row(&[
                fleet(&story.scenario),
                vec![name.to_owned()],
                waits(start),
                cost(&story.scenario, &start.cost),
            ]);
        }
    }
    let columns = ["after", "writes a second", "by the formula", "busiest second", "without a lease"];
    head("At rest, over three windows", &[&FLEET[..], &columns, &costs].concat());
    for story in &stories {
        let after = story.outages.iter().map(|(cut, _, rest)| (format!("outage, {cut}"), rest));
        for (name, rest) in [("the start".to_owned(), &story.rest)].into_iter().chain(after) {
            let figures = vec![
                name,
                rest.writes_per_second.to_string(),
                story.scenario.renewals_per_second().to_string(),
                rest.cost.most_writes_a_second.to_string(),
                rest.lacking.to_string(),
            ];
            row(&[fleet(&story.scenario), figures, cost(&story.scenario, &rest.cost)]);
        }
    }
    head(
        "The store is away for a minute",
        &[&FLEET[..], &["calls are", "most without a lease"], &starts, &costs].concat(),
    );
    for story in &stories {
        for (cut, outage, _) in &story.outages {
            let figures = vec![cut.to_string(), outage.most_lacking.to_string()];
            let recovery = &outage.recovery;
            row(&[fleet(&story.scenario), figures, waits(recovery), cost(&story.scenario, &recovery.cost)]);
        }
    }
    if !others.is_empty() {
        head("Not simulated: more renewals than four fifths of the writes", &FLEET);
        for scenario in &others {
            row(&[fleet(scenario)]);
        }
    }
    let mut shared = stories.iter().flat_map(Story::costs).map(|cost| cost.shared_workers).sum::<u64>();
    if arguments.day {
        let (outage, rest) = cut_off_for_a_day();
        head(
            "A quarter of the nodes is cut off from the one store for a day",
            &[&FLEET[..], &["most without a lease"], &starts, &costs, &["leases lost by the others"]]
                .concat(),
        );
        let figures = vec![outage.most_lacking.to_string()];
        let recovery = &outage.recovery;
        let lost = vec![(recovery.cost.lost_leases + rest.cost.lost_leases).to_string()];
        row(&[fleet(&REGIONS), figures, waits(recovery), cost(&REGIONS, &recovery.cost), lost]);
        shared += recovery.cost.shared_workers + rest.cost.shared_workers;
    }
    say(format!("\nTimes that two nodes could use one worker at one time: {shared}."));
    shared == 0
}

fn cut_off_for_a_day() -> (Outage, Rest) {
    let mut fleet = Fleet::new(REGIONS);
    fleet.start();
    fleet.rest(REGIONS.window_ms);
    let outage = fleet.cut_off(0..REGIONS.nodes / 4, Cut::Unanswered, DAY_MS);
    (outage, fleet.rest(REGIONS.window_ms))
}

/// Runs `each` on all processors, and keeps the order.
fn in_parallel<T: Copy + Sync, R: Send>(inputs: &[T], each: impl Fn(T) -> R + Sync) -> Vec<R> {
    let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((nth, input)) =
                    Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|nth| Some((nth, *inputs.get(nth)?)))
                {
                    let result = each(input);
                    done.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((nth, result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    done.sort_by_key(|(nth, _)| *nth);
    done.into_iter().map(|(_, result)| result).collect()
}

const FLEET: [&str; 4] = ["store, writes a second", "nodes", "window", "calls given up are"];

fn fleet(scenario: &FleetScenario) -> Vec<String> {
    vec![
        format!("{}, {}", scenario.store.name, scenario.store.writes_per_second),
        scenario.nodes.to_string(),
        format!("{} s", scenario.window_ms / 1_000),
        match scenario.given_up {
            GivenUp::Dropped => "dropped".to_owned(),
            GivenUp::Executed => "executed".to_owned(),
        },
    ]
}

fn waits(waits: &Waits) -> Vec<String> {
    let Waits { half_ms, most_ms, all_ms, lacking, .. } = waits;
    [half_ms, most_ms, all_ms].map(|ms| seconds(*ms)).into_iter().chain([lacking.to_string()]).collect()
}

fn cost(scenario: &FleetScenario, cost: &Cost) -> Vec<String> {
    let each = |calls: u64| {
        let hundredths = calls * 100 / u64::from(scenario.nodes);
        format!("{}.{:02}", hundredths / 100, hundredths % 100)
    };
    vec![
        each(cost.reads),
        each(cost.writes),
        cost.conflicts.to_string(),
        cost.timeouts.to_string(),
        seconds(cost.longest_queue_ms),
    ]
}

fn seconds(ms: u64) -> String {
    format!("{}.{} s", ms / 1_000, ms % 1_000 / 100)
}

fn head(heading: &str, columns: &[&str]) {
    let rule = columns.iter().enumerate().map(|(nth, _)| if nth == 0 { "---|" } else { "--:|" });
    say(format!("\n## {heading}\n\n| {} |\n|{}", columns.join(" | "), rule.collect::<String>()));
}

fn row(parts: &[Vec<String>]) {
    say(format!("| {} |", parts.concat().join(" | ")));
}

#[expect(clippy::print_stdout, reason = "printing is what it is for")]
fn say(line: impl Display) {
    println!("{line}");
}
