//! READMEs and docs: link targets exist, the book has every page, each console block prints the output it
//! shows, and the clients in other languages run.
//!
//! In a block, `$` begins a command; the lines below it are its output. Ids, dates and times may differ, and
//! `…` stands for any text (alone on a line, for any lines). A command without output must succeed; of
//! `snowmint serve`, only the flags are checked. A block that cannot run on a test machine follows `<!-- not
//! run: REASON -->`, one that needs another system `<!-- on: SYSTEM -->`, a program `<!-- run: python -->` or
//! `<!-- run: node -->`, and a program with the client of its language `<!-- client: LANGUAGE -->`.

mod other_systems;

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;

use serde_json::{Value, json};
use snowmint_test_servers::snowmint::{self, Serve, Server};

use self::other_systems::OtherSystems;

/// Number of pages to test at once.
const AT_ONCE: usize = 4;

fn entries(folder: PathBuf) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path())
}

/// The pages of docs and its folders.
fn pages_of_docs() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![snowmint::workspace().join("docs")];
    while let Some(folder) = folders.pop() {
        let (inner, files): (Vec<_>, Vec<_>) = entries(folder).partition(|path| path.is_dir());
        folders.extend(inner);
        found.extend(files.into_iter().filter(|path| path.extension().is_some_and(|it| it == "md")));
    }
    found
}

/// The pages of the repository's root and of docs, and the README of each crate and folder.
fn pages() -> Vec<PathBuf> {
    const FOLDERS: [&str; 7] = ["", "bench", "examples", "fuzz", "monitoring", "sim", "tests"];
    let root = snowmint::workspace();
    let mut pages: Vec<_> = FOLDERS.iter().flat_map(|folder| entries(root.join(folder))).collect();
    pages.extend(pages_of_docs());
    for folder in ["crates", "examples"] {
        pages.extend(entries(root.join(folder)).map(|path| path.join("README.md")));
    }
    // These two are records: the things that they name may be gone.
    pages.retain(|path| {
        path.extension().is_some_and(|it| it == "md")
            && !path.ends_with("CHANGELOG.md")
            && !path.ends_with("RESULTS.md")
    });
    pages.retain(|path| path.is_file());
    pages.sort();
    assert!(pages.len() > 15, "pages are missing: {pages:?}");
    pages
}

#[test]
fn links_and_paths_lead_somewhere() {
    let mut broken = Vec::new();
    let sources = sources();
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        for (nth, line) in text.lines().enumerate() {
            for target in links(line) {
                if !link_exists(&page, target) {
                    broken.push(format!("{}:{}: link {target}", page.display(), nth + 1));
                }
            }
            for path in line.split('`').skip(1).step_by(2).filter(|it| names_a_file(it)) {
                for path in each_of(path).iter().filter(|path| !snowmint::workspace().join(path).exists()) {
                    broken.push(format!("{}:{}: path {path}", page.display(), nth + 1));
                }
            }
            // The end of a path, such as `mint/namespace.rs`.
            let ends = line.split('`').skip(1).step_by(2).filter(|it| !it.contains([' ', '*']));
            for end in ends.filter(|it| is_source(Path::new(it))) {
                if !sources.iter().any(|path| path.ends_with(end)) {
                    broken.push(format!("{}:{}: path {end}", page.display(), nth + 1));
                }
            }
        }
    }
    assert!(broken.is_empty(), "these lead nowhere:\n{}", broken.join("\n"));
}

/// Each page of docs is a chapter of the book: in the SUMMARY.md of its folder, or of the next folder above
/// that has one.
#[test]
fn the_book_has_every_page() {
    let mut missing = Vec::new();
    for page in pages_of_docs().into_iter().filter(|page| !page.ends_with("SUMMARY.md")) {
        let folder = page.ancestors().skip(1).find(|it| it.join("SUMMARY.md").is_file()).unwrap();
        let name = page.strip_prefix(folder).unwrap().display().to_string();
        if !fs::read_to_string(folder.join("SUMMARY.md")).unwrap().contains(&format!("]({name})")) {
            missing.push(page);
        }
    }
    assert!(missing.is_empty(), "SUMMARY.md lacks {missing:?}");
}

/// Returns whether the page is a translation: `docs/zh/check.py` checks that its blocks equal those of the
/// original page.
fn translated(page: &Path) -> bool {
    page.starts_with(snowmint::workspace().join("docs/zh"))
}

/// In the book, a link to a file outside docs leads to the code host, also to a README.md there. A link to a
/// README.md of docs leads to the index.html that mdBook makes of it. Other links do not change.
#[test]
fn links_of_the_book_lead_to_the_host_or_a_page() {
    let chapter = |content: &str| {
        let chapter = json!({ "path": "migrate/leaf.md", "content": content, "sub_items": [] });
        json!({ "items": [{ "Chapter": chapter }, "Separator"] })
    };
    let book = json!([
        {},
        chapter("[a](../../crates/x#y) [b](../faq.md) [c](README.md#z) [d](../../sim/README.md)")
    ]);
    let mut python = Command::new("python3");
    python.arg(snowmint::workspace().join("docs/book.py")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = python.spawn().unwrap();
    child.stdin.take().unwrap().write_all(book.to_string().as_bytes()).unwrap();
    let written: Value = serde_json::from_slice(&child.wait_with_output().unwrap().stdout).unwrap();
    let host = "https://github.com/snowmint/snowmint/blob/main";
    let expected = format!("[a]({host}/crates/x#y) [b](../faq.md) [c](index.md#z) [d]({host}/sim/README.md)");
    assert_eq!(written, chapter(&expected));
}

/// A page with examples in Rust is among those that the doc tests of snowmint-server compile.
#[test]
fn examples_in_rust_are_compiled() {
    let compiled =
        fs::read_to_string(snowmint::workspace().join("crates/snowmint-server/src/lib.rs")).unwrap();
    for page in pages_of_docs().into_iter().filter(|page| !translated(page)) {
        let name = page.strip_prefix(snowmint::workspace()).unwrap().display().to_string();
        let has_examples = fs::read_to_string(&page).unwrap().contains("```rust");
        assert!(!has_examples || compiled.contains(&name), "{name} is not in snowmint-server/src/lib.rs");
    }
}

/// Goal: a reader who copies a program in Rust gets the crates that it uses. Method: before the first program
/// of these pages, a block names each crate of ours in it, in this repository.
#[test]
fn programs_in_rust_come_with_their_lines_for_cargo() {
    const PAGES: [&str; 5] = [
        "README.md",
        "docs/quick-start.md",
        "crates/snowmint/README.md",
        "crates/snowmint-client/README.md",
        "crates/snowmint-cluster/README.md",
    ];
    let root = snowmint::workspace();
    let workspace = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let repository = workspace.lines().find_map(|line| line.strip_prefix("repository = ")).unwrap();
    for page in PAGES {
        let text = fs::read_to_string(root.join(page)).unwrap();
        let (before, program) = text.split_once("```rust").unwrap();
        let program = program.split("```").next().unwrap();
        let lines = before.rsplit("```toml\n[dependencies]\n").next().unwrap().split("```").next().unwrap();
        let given: Vec<_> = lines.lines().filter(|line| line.starts_with("snowmint")).collect();
        for line in &given {
            let (name, source) = line.split_once(" = ").unwrap();
            assert!(root.join("crates").join(name).is_dir(), "{page}: no crate {name}");
            assert!(source.starts_with(&format!("{{ git = {repository}")), "{page}: {line}");
        }
        let uses = ["snowmint", "snowmint_client", "snowmint_cluster", "snowmint_store"];
        for used in uses.iter().filter(|used| program.contains(&format!("{used}::"))) {
            let name = format!("{} = ", used.replace('_', "-"));
            assert!(
                given.iter().any(|line| line.starts_with(&name)),
                "{page} uses {used} without a line for it"
            );
        }
    }
}

/// The targets of `[text](target)`, except addresses on the web.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.starts_with("http"))
}

fn link_exists(page: &Path, target: &str) -> bool {
    let (file, anchor) = target.split_once('#').map_or((target, None), |(file, anchor)| (file, Some(anchor)));
    let path = if file.is_empty() { page.to_owned() } else { page.parent().unwrap().join(file) };
    let Some(anchor) = anchor else { return path.exists() };
    fs::read_to_string(path).is_ok_and(|text| text.lines().any(|line| slug(line).as_deref() == Some(anchor)))
}

/// Whoever gets an alert finds its paragraph: each alert in `monitoring` links to a heading of its own in
/// docs/troubleshooting.md.
#[test]
fn each_alert_links_to_its_paragraph() {
    const HOST: &str = "https://github.com/snowmint/snowmint/blob/main/";
    let alerts = fs::read_to_string(snowmint::workspace().join("monitoring/alerts.yml")).unwrap();
    let alerts: Vec<&str> = alerts.split("- alert: ").skip(1).collect();
    assert!(alerts.len() >= 10, "{alerts:?}");
    let readme = snowmint::workspace().join("README.md");
    for alert in alerts {
        let (name, rest) = alert.split_once('\n').unwrap();
        let url = rest.split_once("runbook_url: ").and_then(|(_, rest)| rest.lines().next()).unwrap();
        assert_eq!(
            url.strip_prefix(HOST),
            Some(&*format!("docs/troubleshooting.md#{}", name.to_lowercase()))
        );
        assert!(link_exists(&readme, url.trim_start_matches(HOST)), "{name}: {url} leads nowhere");
    }
}

/// The anchor of a heading, as GitHub makes it.
fn slug(line: &str) -> Option<String> {
    let heading = line.strip_prefix('#')?.trim_start_matches('#').strip_prefix(' ')?;
    let kept = heading.chars().filter(|it| it.is_alphanumeric() || matches!(it, ' ' | '-' | '_'));
    Some(kept.collect::<String>().to_lowercase().replace(' ', "-"))
}

/// Returns whether a text in backticks is a path of this repository.
fn names_a_file(text: &str) -> bool {
    const FOLDERS: [&str; 6] = ["crates/", "docs/", "tests/", "sim/", "bench/", "fuzz/"];
    FOLDERS.iter().any(|folder| text.starts_with(folder)) && !text.contains([' ', '*', '<'])
}

/// The paths that `a/{b,c}.rs` names.
fn each_of(path: &str) -> Vec<String> {
    let braces = path.split_once('{').and_then(|(begin, rest)| Some((begin, rest.split_once('}')?)));
    let Some((begin, (names, end))) = braces else { return vec![path.to_owned()] };
    names.split(',').map(|name| format!("{begin}{name}{end}")).collect()
}

/// The tests that tests/README.md names exist. `*` stands for any text.
#[test]
fn named_tests_exist() {
    let texts: Vec<_> = sources().iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    let names: Vec<_> = texts
        .iter()
        .flat_map(|text| text.split("fn ").skip(1).filter_map(|rest| rest.split(['(', '<']).next()))
        .collect();
    let page = fs::read_to_string(snowmint::workspace().join("tests/README.md")).unwrap();
    let mut found = 0;
    let mut missing = Vec::new();
    // A row: the seam, the answer, and the tests.
    for tests in page.lines().filter_map(|line| line.split(" | ").nth(2)) {
        for name in tests.split('`').skip(1).step_by(2).filter(|name| name.contains('_')) {
            found += 1;
            let shown = name.replace('*', "…");
            if !names.iter().any(|it| line_agrees(&shown, it)) {
                missing.push(name);
            }
        }
    }
    assert!(missing.is_empty(), "no test has these names: {missing:?}");
    assert!(found > 50, "only {found} tests are named");
}

fn is_source(path: &Path) -> bool {
    path.extension().is_some_and(|it| it == "rs")
}

/// Every source file of the repository.
fn sources() -> Vec<PathBuf> {
    let mut folders: Vec<_> =
        ["bench", "crates", "fuzz", "sim", "tests"].map(|it| snowmint::workspace().join(it)).into();
    let mut sources = Vec::new();
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() && !path.ends_with("target") {
                folders.push(path);
            } else if is_source(&path) {
                sources.push(path);
            }
        }
    }
    sources
}

/// The log lines of `docs/troubleshooting.md` and the metrics of `docs/metrics.md` are those of the code. In
/// a line, `..` and words with digits vary.
#[test]
fn log_lines_and_metrics_exist() {
    let code: String = sources()
        .iter()
        .filter(|path| path.starts_with(snowmint::workspace().join("crates")))
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    // Long texts continue on the next line.
    let code: String = code.split("\\\n").map(str::trim_start).collect();
    let page = |name| fs::read_to_string(snowmint::workspace().join(name)).unwrap();
    let (lines, metrics) = (page("docs/troubleshooting.md"), page("docs/metrics.md"));
    let mut wrong = Vec::new();
    let mut found = 0;
    for row in lines.lines().filter(|line| line.starts_with("| `")) {
        let cell = row.split(" | ").next().unwrap();
        for text in cell.split('`').skip(1).step_by(2) {
            let varies = |word: &str| word.contains("..") || word.contains(|it: char| it.is_ascii_digit());
            let words: Vec<_> = text.split(' ').collect();
            for fixed in words.split(|word| varies(word)).map(|words| words.join(" ")) {
                found += 1;
                if !code.contains(&fixed) {
                    wrong.push(fixed);
                }
            }
        }
    }
    for rest in metrics.split("`snowmint_").skip(1) {
        found += 1;
        let end = rest.find(|it: char| !it.is_ascii_lowercase() && it != '_').unwrap();
        if !code.contains(rest[..end].trim_end_matches("_total")) {
            wrong.push(format!("snowmint_{}", &rest[..end]));
        }
    }
    assert!(wrong.is_empty(), "not in the code: {wrong:#?}");
    assert!(found > 40, "only {found} texts were found");
}

/// A command and the lines that the page shows below it.
#[derive(Debug)]
struct Step {
    line: usize,
    command: String,
    shown: Vec<String>,
}

/// The blocks that a page asks its reader to run.
#[derive(Debug)]
enum Block {
    /// Commands, with the system that they need besides Snowmint.
    Console { on: Option<String>, steps: Vec<Step> },
    /// A program in `python` or `node`.
    Program(Program),
    /// A program in `go`, `java`, `node` or `python` that uses the client in `clients`.
    WithClient(Program),
}

#[derive(Debug)]
struct Program {
    line: usize,
    language: String,
    source: String,
}

/// The blocks of a page that can be run here.
fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = text.lines().enumerate();
    let mut before = "";
    while let Some((nth, line)) = lines.next() {
        let fence = line.trim_start();
        let indent = line.len() - fence.len();
        if let Some(language) = fence.strip_prefix("```") {
            // A block in a list is indented as a whole.
            let body: Vec<_> = lines
                .by_ref()
                .map(|(nth, line)| (nth + 1, line.get(indent..).unwrap_or_default()))
                .take_while(|(_, line)| *line != "```")
                .collect();
            let note = |name: &str| {
                let rest = before.strip_prefix("<!-- ")?.strip_prefix(name)?.strip_prefix(": ")?;
                rest.strip_suffix(" -->").map(str::to_owned)
            };
            if language == "console" && note("not run").is_none() {
                blocks.push(Block::Console { on: note("on"), steps: steps(&body) });
            }
            let source = || body.iter().flat_map(|(_, line)| [*line, "\n"]).collect();
            let program = |language| Program { line: nth + 1, language, source: source() };
            blocks.extend(note("run").map(program).map(Block::Program));
            blocks.extend(note("client").map(program).map(Block::WithClient));
        }
        if !fence.is_empty() {
            before = fence;
        }
    }
    blocks
}

fn steps(body: &[(usize, &str)]) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for &(nth, line) in body {
        match (line.strip_prefix("$ "), steps.last_mut()) {
            (Some(command), _) => {
                steps.push(Step { line: nth, command: command.to_owned(), shown: Vec::new() });
            }
            (None, Some(step)) if step.command.ends_with('\\') && step.shown.is_empty() => {
                step.command.pop();
                step.command.push_str(line.trim_start());
            }
            (None, Some(step)) => step.shown.push(line.to_owned()),
            (None, None) => panic!("line {nth}: a console block begins with `$ `"),
        }
    }
    steps
}

#[test]
fn console_blocks_print_what_they_show() {
    let left = Mutex::new(pages().into_iter().filter(|page| !translated(page)));
    let found = Mutex::new((0, Vec::new()));
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let page = left.lock().unwrap().next();
                    let Some(page) = page else { break };
                    let (tried, wrong) = try_page(&page);
                    let mut found = found.lock().unwrap();
                    found.0 += tried;
                    found.1.extend(wrong);
                }
            });
        }
    });
    let (tried, wrong) = found.into_inner().unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert!(tried > 100, "only {tried} commands were found");
}

/// Runs the blocks of a page on a separate server. Returns the number of commands and programs, and the
/// failures.
fn try_page(page: &Path) -> (usize, Vec<String>) {
    let blocks = blocks(&fs::read_to_string(page).unwrap());
    let mut tried = 0;
    let mut wrong = Vec::new();
    if blocks.is_empty() {
        return (tried, wrong);
    }
    let folder = tempfile::tempdir().unwrap();
    let server = Serve::new(folder.path()).data(&state_of(folder.path()).join("snowmint")).start();
    let mut others = OtherSystems::default();
    for block in blocks {
        match block {
            Block::Console { on, steps } => {
                if let Some(system) = on {
                    others.start(&system);
                }
                for (step, (printed, status)) in
                    steps.iter().zip(run(&steps, folder.path(), &server, &others))
                {
                    tried += 1;
                    let printed = printed.replace(&folder.path().display().to_string(), "/home/ann");
                    let right = match &*step.shown {
                        [] => status == "0",
                        shown => agrees(shown, &printed),
                    };
                    if !right {
                        let (shown, place) =
                            (step.shown.join("\n"), format!("{}:{}", page.display(), step.line));
                        let command = &step.command;
                        wrong.push(format!(
                            "{place}: $ {command}\n--- shown\n{shown}\n--- printed, exit code {status}\n{printed}"
                        ));
                    }
                }
            }
            Block::Program(program) => {
                tried += 1;
                wrong.extend(program.fails(page, stock(&program.language), &server));
            }
            Block::WithClient(_) => {}
        }
    }
    server.stop();
    (tried, wrong)
}

/// The folder of the default data directory of a user with this home.
fn state_of(home: &Path) -> PathBuf {
    home.join(".local/state")
}

/// Runs the commands of a block in one shell, and returns what each printed and its exit code.
fn run(steps: &[Step], folder: &Path, server: &Server, others: &OtherSystems) -> Vec<(String, String)> {
    const PRINTED: char = '\u{1}';
    const ENDED: char = '\u{2}';
    let (http, resp) = (server.http(), server.resp());
    // As they print at a terminal. Repeats a request if the source of its namespace is still being opened.
    let mut script = format!(
        "patient() {{ local answer=.answer.$BASHPID status n
            for ((n = 0; n < 200; n++)); do
                \"$@\" >$answer; status=$?
                grep -q 'sources are being opened' $answer || break
                sleep 0.1
            done
            cat $answer; rm $answer; return $status
        }}
        curl() {{ patient command curl -s \"$@\"; }}
        redis-cli() {{ patient command redis-cli --no-raw -h {} \"$@\"; }}\n",
        resp.ip()
    );
    script += &others.clients();
    for step in steps {
        let command = step.command.replace("localhost:8080", &http.to_string());
        let command = command.replace("redis-cli -p 6380", &format!("redis-cli -p {}", resp.port()));
        let command = others.with_addresses(&command);
        // The server of this test replaces `serve`; other tests cover its start.
        let command = match command.strip_prefix("snowmint serve") {
            Some(flags) => format!("snowmint config print{flags} >/dev/null"),
            None if command.ends_with("-- serve") => "true".to_owned(),
            None => command,
        };
        script += &format!("{{ {command}\n}} 2>&1\nprintf '{PRINTED}%s{ENDED}' \"$?\"\n");
        if let Some(added) = command.split(" ns add ").nth(1).and_then(|rest| rest.split(' ').next()) {
            // Nodes notice a new namespace within seconds. The test does not wait for one in another store.
            let waits = if command.contains("--store") { 0 } else { 200 };
            script += &format!(
                "for ((n = 0; n < {waits}; n++)); do curl '{http}/v1/inspect/1?namespace={added}' | \
                 grep -q unknown-namespace || break; sleep 0.1; done\n"
            );
        }
    }
    let mut path = snowmint::binary().parent().unwrap().as_os_str().to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    let mut bash = snowmint::clean(Command::new("bash"));
    let output = bash
        .args(["-c", &script])
        .current_dir(folder)
        .env("PATH", path)
        .env(snowmint::STATE, state_of(folder))
        .output()
        .expect("bash is installed");
    let text = String::from_utf8(output.stdout).unwrap();
    let ran: Vec<_> = text
        .split(ENDED)
        .filter_map(|it| it.split_once(PRINTED))
        .map(|(printed, status)| (others.with_names(printed), status.to_owned()))
        .collect();
    assert_eq!(ran.len(), steps.len(), "the shell ended early: {text}");
    ran
}

impl Program {
    /// Runs it by a command that reads its source from standard input. Returns what failed.
    fn fails(&self, page: &Path, mut command: Command, server: &Server) -> Option<String> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let Self { line, language, .. } = self;
        let place = || format!("{}:{line}: {language}", page.display());
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => return Some(format!("{}: cannot be run: {error}", place())),
        };
        child.stdin.take().unwrap().write_all(self.source_for(server).as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let failed = !output.status.success();
        failed.then(|| format!("{}\n--- printed\n{}", place(), snowmint::text(&output)))
    }

    /// Returns its source with the addresses of a server.
    fn source_for(&self, server: &Server) -> String {
        let (http, resp) = (server.http(), server.resp());
        let source = self.source.replace("127.0.0.1:8080", &http.to_string());
        source.replace("6380", &resp.port().to_string()).replace("127.0.0.1", &resp.ip().to_string())
    }
}

/// The command for programs without a client of ours. Pages name files of the repository.
fn stock(language: &str) -> Command {
    let mut command = snowmint::clean(Command::new(if language == "python" { "python3" } else { language }));
    let modules = snowmint::workspace().join("target/node/node_modules");
    command.arg("-").env("NODE_PATH", modules).current_dir(snowmint::workspace());
    command
}

/// The command for programs with the client of a language, as its `check.sh` built it.
fn with_client(language: &str) -> Command {
    let (folder, run) = match language {
        "go" => ("target/page.XXXX", "cat >$d/main.go && go run ./$d"),
        "java" => ("", "cat >$d/Ids.java && java -cp client/target/classes $d/Ids.java"),
        "node" => (
            "",
            "mkdir $d/node_modules && ln -s $PWD $d/node_modules/snowmint && cat >$d/ids.mjs && node $d/ids.mjs",
        ),
        "python" => ("", "PYTHONPATH=src python3 -"),
        _ => panic!("no client in {language}"),
    };
    let run = format!("d=$(mktemp -d {folder}) && trap 'rm -r $d' EXIT && {run}");
    let mut command = snowmint::clean(Command::new("bash"));
    command.args(["-c", &run]).current_dir(snowmint::workspace().join("clients").join(language));
    command
}

/// Goal: the programs of docs/clients.md run as they stand there.
#[test]
#[ignore = "needs the clients that `./check clients` builds"]
fn programs_with_clients_run() {
    let page = snowmint::workspace().join("docs/clients.md");
    let folder = tempfile::tempdir().unwrap();
    let server = Serve::new(folder.path()).start();
    let mut tried = BTreeSet::new();
    let mut wrong = Vec::new();
    for block in blocks(&fs::read_to_string(&page).unwrap()) {
        let Block::WithClient(program) = block else { continue };
        wrong.extend(program.fails(&page, with_client(&program.language), &server));
        tried.insert(program.language);
    }
    server.stop();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert_eq!(tried, ["go", "java", "node", "python"].map(str::to_owned).into());
}

/// Returns whether a command printed the output that the page shows, except for ids and times.
fn agrees(shown: &[String], printed: &str) -> bool {
    let printed: Vec<_> = printed.lines().map(without_ids).collect();
    let shown: Vec<_> = shown.iter().map(|line| without_ids(line)).collect();
    lines_agree(&shown, &printed)
}

fn lines_agree(shown: &[String], printed: &[String]) -> bool {
    match shown {
        [] => printed.is_empty(),
        [any, rest @ ..] if any == "…" => {
            (0..=printed.len()).any(|skipped| lines_agree(rest, &printed[skipped..]))
        }
        [line, rest @ ..] => {
            printed.first().is_some_and(|it| line_agrees(line, it)) && lines_agree(rest, &printed[1..])
        }
    }
}

fn line_agrees(shown: &str, printed: &str) -> bool {
    match shown.split_once('…') {
        None => shown == printed,
        Some((begin, rest)) => printed.strip_prefix(begin).is_some_and(|printed| {
            let mut ends = printed.char_indices().map(|(at, _)| at).chain([printed.len()]);
            ends.any(|at| line_agrees(rest, &printed[at..]))
        }),
    }
}

/// The line with `#` for each number of eight digits and more, and for each instant.
fn without_ids(line: &str) -> String {
    let mut text = String::new();
    let mut rest = line.trim_end();
    while let Some(at) = rest.find(|it: char| it.is_ascii_digit()) {
        text.push_str(&rest[..at]);
        rest = &rest[at..];
        let instant = instant_len(rest);
        let digits = rest.find(|it: char| !it.is_ascii_digit()).unwrap_or(rest.len());
        let len = instant.unwrap_or(digits);
        text.push_str(if instant.is_some() || digits >= 8 { "#" } else { &rest[..len] });
        rest = &rest[len..];
    }
    text + rest
}

/// The length of the instant at the start of a text, such as `2026-11-22T05:27:23.000Z`.
fn instant_len(text: &str) -> Option<usize> {
    const PATTERN: &[u8] = b"0000-00-00T00:00:00";
    let matches = |(have, want): (u8, &u8)| if *want == b'0' { have.is_ascii_digit() } else { have == *want };
    let whole = text.len() > PATTERN.len() && text.bytes().zip(PATTERN).all(matches);
    whole.then(|| text.find('Z')).flatten().map(|end| end + 1)
}

#[test]
fn a_wrong_page_would_be_noticed() {
    let steps = |text: &str| blocks(&format!("```console\n{text}\n```\n"));
    let [Block::Console { on: None, steps }] = &steps("$ snowmint new\n2123985208431714304")[..] else {
        panic!("one block")
    };
    let [step] = &steps[..] else { panic!("one command") };
    assert!(agrees(&step.shown, "2123985208431714999\n"));
    assert!(!agrees(&step.shown, "2123985208431714999\nand more\n"));
    assert!(!agrees(&step.shown, "error\n"));
    assert!(agrees(&["a".into(), "…".into()], "a\nb\nc\n"));
    assert!(agrees(&["at 2026-11-22T05:27:23.000Z, …!".into()], "at 2027-01-01T00:00:00.001Z, now!\n"));
    assert!(!agrees(&["value 7".into()], "value 8\n"));
    assert!(blocks("<!-- not run: needs two servers -->\n```console\n$ false\n```\n").is_empty());
    let [Block::Console { on: Some(system), steps }, Block::Program(Program { language, source, .. })] =
        &blocks(
            "<!-- on: leaf -->\n   ```console\n   $ true\n   ```\n<!-- run: node -->\n```javascript\n;\n```\n",
        )[..]
    else {
        panic!("two blocks")
    };
    assert_eq!((&**system, &*steps[0].command, &**language, &**source), ("leaf", "true", "node", ";\n"));
    assert_eq!(slug("## What to do at 3 a.m.").as_deref(), Some("what-to-do-at-3-am"));
    assert!(!link_exists(&snowmint::workspace().join("README.md"), "docs/nothing.md"));
    assert!(!link_exists(&snowmint::workspace().join("README.md"), "docs/stores.md#nothing"));
}
