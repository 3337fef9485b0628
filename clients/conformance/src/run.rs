//! Runs scenarios against a driver: several at a time, each worker with a driver process of its own, which runs one scenario after
//! the other.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::Write as _;
use std::path::Path;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use snowmint_test_servers::{Certificates, time};

use crate::driver::{Answer, Driver, DriverError};
use crate::expectations::{Asked, Findings};
use crate::scenario::{Expect, Scenario, Step};
use crate::server::{Servers, lock};

/// The namespace of steps that name none.
const NAMESPACE: &str = "orders";

/// Time limit for whatever a scenario waits for. Machines are slow at times.
const PATIENCE: Duration = Duration::from_mins(1);

/// How a scenario ended.
#[derive(Debug)]
pub struct Outcome {
    /// The name of the scenario.
    pub name: String,
    /// What was wrong; nothing if it passed.
    pub problems: Vec<String>,
    /// How long it took.
    pub took: Duration,
}

/// What all scenarios of a run share.
struct Kit<'a> {
    command: &'a [String],
    certificates: [Certificates; 2],
}

/// Runs scenarios, `at_once` at a time, and calls `report` after each.
pub fn run(
    command: &[String],
    scenarios: &[Scenario],
    at_once: usize,
    report: impl FnMut(&Outcome) + Send,
) -> Vec<Outcome> {
    let kit = Kit { command, certificates: [Certificates::make(), Certificates::make()] };
    let queue: Mutex<VecDeque<_>> = Mutex::new(scenarios.iter().collect());
    let ended = Mutex::new((Vec::new(), report));
    thread::scope(|scope| {
        for _ in 0..at_once.clamp(1, scenarios.len().max(1)) {
            scope.spawn(|| {
                let mut driver = None;
                loop {
                    let Some(scenario) = lock(&queue).pop_front() else { return };
                    let outcome = kit.run(&mut driver, scenario);
                    let (outcomes, report) = &mut *lock(&ended);
                    report(&outcome);
                    outcomes.push(outcome);
                }
            });
        }
    });
    lock(&ended).0.drain(..).collect()
}

/// Prints the outcome of a scenario as one line, and a line for each problem.
pub fn print(outcome: &Outcome) {
    let word = if outcome.problems.is_empty() { "ok  " } else { "FAIL" };
    let mut text = format!("{word} {} ({:.1} s)\n", outcome.name, outcome.took.as_secs_f64());
    for problem in &outcome.problems {
        for part in ["       ", problem, "\n"] {
            text.push_str(part);
        }
    }
    // Without a reader there is nobody to tell.
    std::io::stdout().write_all(text.as_bytes()).ok();
}

impl Kit<'_> {
    fn run(&self, driver: &mut Option<Driver>, scenario: &Scenario) -> Outcome {
        let began = time::now();
        let mut findings = Findings::default();
        match self.try_run(driver, scenario, &mut findings) {
            Ok(()) => {}
            Err(error) => findings.problem(error.to_string()),
        }
        if !findings.problems.is_empty() {
            // The next scenario gets a fresh one.
            *driver = None;
        }
        Outcome { name: scenario.name.clone(), problems: findings.problems, took: began.elapsed() }
    }

    fn try_run(
        &self,
        driver: &mut Option<Driver>,
        scenario: &Scenario,
        findings: &mut Findings,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let servers = Servers::start(&scenario.servers, &self.certificates[0])?;
        let folder = tempfile::tempdir()?;
        let driver = match driver {
            Some(driver) => driver,
            None => driver.insert(Driver::start(self.command)?),
        };
        let options = self.options(scenario, &servers, folder.path());
        let mut play = Play {
            driver,
            findings,
            texts: scenario.texts,
            is_unsupported: false,
            servers: &servers,
            folder: folder.path(),
            started: HashMap::new(),
            running: 0,
        };
        if let Some(first) = scenario.steps.first().filter(|step| step.token_file.is_some()) {
            play.step(first)?;
        }
        let opened = play.driver.send(json!({"op": "open", "options": options})).within(PATIENCE)?;
        let expect = scenario.open.clone().unwrap_or_default();
        play.compare("open", None, false, (&opened, Duration::ZERO), &expect);
        if opened.get("error").is_some() {
            return Ok(());
        }
        for step in &scenario.steps {
            play.step(step)?;
            if play.is_unsupported {
                return Ok(());
            }
        }
        if !scenario.steps.iter().any(|step| step.op.as_deref() == Some("close")) {
            let closed = play.driver.send(json!({"op": "close"})).within(PATIENCE)?;
            play.compare("close", None, false, (&closed, Duration::ZERO), &Expect::default());
        }
        let log = lock(&servers.log);
        findings.compare_all_requests(&log, scenario.texts);
        if !findings.problems.is_empty() {
            let asked = log.requests.iter().map(|(server, requests)| {
                let counts: Vec<_> = requests.iter().map(|it| it.count.unwrap_or_default()).collect();
                format!("{server}: {counts:?}")
            });
            let asked = asked.collect::<Vec<_>>().join(", ");
            findings
                .problem(format!("({} The servers got requests with these counts: {asked})", scenario.why));
        }
        Ok(())
    }

    /// Returns the options of a scenario with the URLs of its servers and the paths of files.
    fn options(&self, scenario: &Scenario, servers: &Servers, folder: &Path) -> Value {
        let mut options: Map<String, Value> = scenario.options.clone();
        options.entry("order").or_insert_with(|| "as_listed".into());
        // A slow machine must not cause hedges that no scenario expects.
        match options.get("hedge_after_ms").map(Value::as_str) {
            None => drop(options.insert("hedge_after_ms".to_owned(), Value::Null)),
            Some(Some("default")) => drop(options.remove("hedge_after_ms")),
            Some(_) => {}
        }
        let names = || servers.urls.keys().cloned().map(Value::from).collect::<Vec<_>>();
        let listed = options.entry("servers").or_insert_with(|| names().into());
        for server in listed.as_array_mut().into_iter().flatten() {
            let text = server.as_str().unwrap_or_default();
            let (name, path) =
                text.split_once('/').map_or((text, ""), |(name, _)| (name, &text[name.len()..]));
            if let Some(url) = servers.urls.get(name) {
                *server = format!("{url}{path}").into();
            }
        }
        let [ours, others] = &self.certificates;
        let file = |path: &Path| Value::from(path.display().to_string());
        for value in options.values_mut() {
            match value.as_str() {
                Some("$CA") => *value = file(ours.authority()),
                Some("$OTHER_CA") => *value = file(others.authority()),
                Some("$TOKEN_FILE") => *value = file(&folder.join("token")),
                _ => {}
            }
        }
        options.into()
    }
}

/// A running scenario.
struct Play<'a> {
    driver: &'a mut Driver,
    findings: &'a mut Findings,
    servers: &'a Servers,
    folder: &'a Path,
    /// Whether the namespaces have a text form, and whether the driver has no calls for them.
    texts: bool,
    is_unsupported: bool,
    started: HashMap<String, (Vec<Answer>, Instant, Step)>,
    /// The number of commands that were started and not finished.
    running: usize,
}

impl Play<'_> {
    fn step(&mut self, step: &Step) -> Result<(), Box<dyn std::error::Error>> {
        if let Some(op) = &step.op {
            let mut command = json!({"op": op});
            if ["next", "try_next", "buffered", "discard_buffered", "fork"].contains(&&**op) {
                command["namespace"] = step.namespace.as_deref().unwrap_or(NAMESPACE).into();
            }
            if let Some(count) = step.count {
                command["count"] = count.into();
            }
            if self.texts {
                command["texts"] = true.into();
            }
            let sent = time::now();
            let answers: Vec<_> =
                (0..step.calls.unwrap_or(1)).map(|_| self.driver.send(command.clone())).collect();
            self.running += answers.len();
            match &step.start {
                Some(name) => drop(self.started.insert(name.clone(), (answers, sent, step.clone()))),
                None => self.finish(&answers, sent, step, &step.expect)?,
            }
        } else if let Some(name) = &step.finish {
            let (answers, sent, started) =
                self.started.remove(name).ok_or_else(|| format!("no command was started as {name}"))?;
            self.finish(&answers, sent, &started, &step.expect)?;
        } else if let Some(ms) = step.sleep_ms {
            thread::sleep(Duration::from_millis(ms));
        } else if let Some(until) = &step.until {
            self.until(until);
        } else if let Some(least) = step.until_buffered {
            self.until_buffered(step, least)?;
        } else if let Some(expected) = &step.requests {
            self.findings.compare_requests(expected, &lock(&self.servers.log));
        } else if let Some(token) = &step.token_file {
            std::fs::write(self.folder.join("token"), token)?;
        }
        Ok(())
    }

    fn finish(
        &mut self,
        answers: &[Answer],
        sent: Instant,
        step: &Step,
        expect: &Expect,
    ) -> Result<(), DriverError> {
        let is_concurrent = self.running > 1;
        for answer in answers {
            let answer = answer.within(PATIENCE)?;
            let op = step.op.as_deref().unwrap_or_default();
            if self.texts && op != "fork" && answer["unsupported"] == true {
                self.is_unsupported = true;
                return Ok(());
            }
            self.compare(op, step.count, is_concurrent, (&answer, sent.elapsed()), expect);
            self.running -= 1;
        }
        Ok(())
    }

    fn compare(
        &mut self,
        op: &str,
        count: Option<u64>,
        is_concurrent: bool,
        (answer, took): (&Value, Duration),
        expect: &Expect,
    ) {
        let asked = Asked { op, count, is_concurrent, took };
        self.findings.compare(&asked, answer, expect, &self.servers.urls, &lock(&self.servers.log));
    }

    fn until(&mut self, until: &BTreeMap<String, usize>) {
        let had = |(server, number): (&String, &usize)| lock(&self.servers.log).of(server).len() >= *number;
        if !time::holds_within(PATIENCE, || until.iter().all(had)) {
            self.findings.problem(format!("the servers did not get these numbers of requests: {until:?}"));
        }
    }

    fn until_buffered(&mut self, step: &Step, least: u64) -> Result<(), DriverError> {
        let namespace = step.namespace.as_deref().unwrap_or(NAMESPACE);
        let began = time::now();
        loop {
            let answer = self
                .driver
                .send(json!({"op": "buffered", "namespace": namespace, "texts": self.texts}))
                .within(PATIENCE)?;
            if answer["buffered"].as_u64().is_some_and(|it| it >= least) {
                return Ok(());
            }
            if began.elapsed() > PATIENCE {
                self.findings.problem(format!("{answer} after {PATIENCE:?}: expected {least} ids in memory"));
                return Ok(());
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}
