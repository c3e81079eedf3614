//! Weaves all mutants of the library into one build, and runs the tests that reach each of them: `cargo xtask mutants`.

mod affinity;
mod cache;
mod check;
mod find;
mod killers;
mod page;
mod run;
mod state;
mod table;
mod trace;
mod tree;
mod unit;
mod values;
mod weave;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use crate::affinity::Affinity;
use crate::check::Strictness;
use crate::killers::Killers;
use crate::run::{Fate, Runner};
use crate::state::{Key, State};
use crate::table::{Row, Survivor, Table};
use crate::tree::Tree;
use crate::unit::{UNITS, Unit};
use crate::weave::{File, Id, Refused};

/// Most mutants that a test notices are caught by the first tests. All tests together take over a minute.
const DEFAULT_BUDGET: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    let result = Options::read(env::args().skip(1)).and_then(|options| match options.check {
        Some(strictness) => check::check(strictness),
        None => mutate(&options),
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mutants: {error}");
            ExitCode::FAILURE
        }
    }
}

#[derive(Debug, Default)]
struct Options {
    check: Option<Strictness>,
    /// Only writes the page again.
    page: bool,
    all: bool,
    /// Only mutants that no test has caught so far.
    survivors: bool,
    jobs: usize,
    /// The most processor time of the tests for one mutant.
    budget: Duration,
    /// Files or directories.
    paths: Vec<String>,
}

impl Options {
    fn read(words: impl Iterator<Item = String>) -> Result<Options, String> {
        let mut options = Options {
            jobs: 2,
            budget: DEFAULT_BUDGET,
            ..Options::default()
        };
        let mut words = words;
        while let Some(word) = words.next() {
            match word.as_str() {
                "--check" => options.check = Some(Strictness::Current),
                "--check-share" => options.check = Some(Strictness::Share),
                "--page" => options.page = true,
                "--all" => options.all = true,
                "--survivors" => options.survivors = true,
                "--jobs" => {
                    let jobs = words.next().and_then(|jobs| jobs.parse().ok());
                    options.jobs = jobs
                        .filter(|&jobs| jobs > 0)
                        .ok_or("--jobs needs a number")?;
                }
                "--budget" => {
                    let seconds = words.next().and_then(|seconds| seconds.parse().ok());
                    options.budget = Duration::from_secs(seconds.ok_or("--budget needs seconds")?);
                }
                option if option.starts_with('-') => {
                    return Err(format!("there is no option `{option}`"));
                }
                _ => options.paths.push(word),
            }
        }
        Ok(options)
    }

    /// Whether the mutants of this file are woven. With `--survivors` all are, so that another choice of files needs no other build.
    fn takes(&self, path: &str, code: &str, table: &Table) -> bool {
        if self.page {
            return false;
        }
        if self.all || self.survivors {
            return true;
        }
        match self.paths.as_slice() {
            [] => table.get(path).is_none_or(|row| row.code != code),
            _ => self.names(path).is_some(),
        }
    }

    /// The place of the argument that names this file, if it is to be run. Without arguments all are.
    fn names(&self, path: &str) -> Option<usize> {
        if self.paths.is_empty() {
            return Some(0);
        }
        let is_named = |wanted: &String| Path::new(path).starts_with(wanted);
        self.paths.iter().position(is_named)
    }
}

/// The directory of the workspace.
fn root() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().nth(2).unwrap_or(package)
}

/// A file that is changed.
struct Source {
    unit: &'static Unit,
    path: String,
    text: String,
    /// The hash of its code.
    code: String,
}

/// All files of the units but those of tests, in order.
fn sources() -> Result<Vec<Source>, String> {
    let mut sources = Vec::new();
    for unit in UNITS {
        let mut paths = Vec::new();
        for path in unit.sources() {
            let failed = |error| format!("{}: {error}", path.display());
            collect(&root().join(&path), &mut paths).map_err(failed)?;
        }
        paths.sort_unstable();
        for path in paths {
            sources.push(read_source(unit, &path)?);
        }
    }
    Ok(sources)
}

fn read_source(unit: &'static Unit, path: &Path) -> Result<Source, String> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    let path = path.strip_prefix(root()).unwrap_or(path);
    let path = path.to_string_lossy().replace('\\', "/");
    let code = find::code_only(&text).map_err(|error| format!("{path}: {error}"))?;
    let code = format!("{:016x}", fnv(code.as_bytes()));
    Ok(Source {
        unit,
        path,
        text,
        code,
    })
}

/// Adds a file, or those below a directory.
fn collect(path: &Path, paths: &mut Vec<PathBuf>) -> std::io::Result<()> {
    if path.is_dir() {
        for entry in fs::read_dir(path)? {
            collect(&entry?.path(), paths)?;
        }
    } else if path.extension().is_some_and(|extension| extension == "rs")
        && !path.ends_with("tests.rs")
    {
        paths.push(path.to_owned());
    }
    Ok(())
}

/// FNV-1a: enough to see that a text changed.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Runs the mutants of the chosen files, and writes the results.
fn mutate(options: &Options) -> Result<(), String> {
    let start = Instant::now();
    let mut table = table::read(root())?;
    let sources = sources()?;
    table.retain(|path, _| sources.iter().any(|source| source.path == *path));
    let woven: Vec<&Source> = sources
        .iter()
        .filter(|source| options.takes(&source.path, &source.code, &table))
        .collect();
    if woven.is_empty() && !options.paths.is_empty() && !options.page {
        let paths = options.paths.join(", ");
        return Err(format!("no source file that has mutants is below {paths}"));
    }
    for unit in UNITS {
        let of_unit = woven.iter().filter(|it| it.unit.package == unit.package);
        let of_unit: Vec<&Source> = of_unit.copied().collect();
        if of_unit.iter().any(|it| options.names(&it.path).is_some()) {
            run_files(unit, options, &of_unit, &mut table)?;
        }
    }
    table::write(root(), &table)?;
    let committed = fs::read_to_string(root().join(page::PAGE)).unwrap_or_default();
    // If nothing was run, the page goes on telling of the run before.
    let last_run = match (woven.is_empty(), page::ran_line(&committed)) {
        (true, Some(last_run)) => last_run.to_owned(),
        _ => {
            let ran = woven.iter().filter(|it| options.names(&it.path).is_some());
            describe_run(ran.count(), start, options)
        }
    };
    let page = page::page(&table, &table::accepted(root())?, &last_run);
    table::write_file(root(), page::PAGE, &page)
}

fn describe_run(files: usize, start: Instant, options: &Options) -> String {
    let output = |program: &str, arguments: &[&str]| {
        let output = Command::new(program)
            .args(arguments)
            .current_dir(root())
            .output();
        let text = output.map(|output| output.stdout).unwrap_or_default();
        String::from_utf8_lossy(&text).trim().to_owned()
    };
    let commit = output("git", &["rev-parse", "--short", "HEAD"]);
    let date = output("date", &["--utc", "+%Y-%m-%d"]);
    let (jobs, budget) = (options.jobs, options.budget.as_secs());
    let minutes = start.elapsed().as_secs().div_ceil(60);
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let words: Vec<String> = env::args().skip(1).collect();
    format!(
        "The last run was `cargo xtask mutants {}` for {files} files, on {date} at commit `{commit}` or shortly after it. It took {minutes} minutes on a machine with {cores} cores, with {jobs} test programs at a time and up to {budget} s of tests for each mutant.",
        words.join(" ")
    )
}

/// Finds the mutants of these files, and numbers them.
fn number(taken: &[&Source]) -> Result<Vec<File>, String> {
    let mut files = Vec::new();
    let mut next: Id = 1;
    for source in taken {
        let sites =
            find::sites(&source.text).map_err(|error| format!("{}: {error}", source.path))?;
        let (path, source) = (source.path.clone(), source.text.clone());
        let file = File {
            path,
            source,
            sites,
            first: next,
        };
        next += file.mutants();
        files.push(file);
    }
    Ok(files)
}

/// Weaves, builds, traces and runs these files of a unit, and enters the results into the table.
fn run_files(
    unit: &'static Unit,
    options: &Options,
    taken: &[&Source],
    table: &mut Table,
) -> Result<(), String> {
    let start = Instant::now();
    let target = root()
        .join(env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
        .join("mutants")
        .join(unit.package);
    let files = number(taken)?;
    let last = files.iter().map(File::mutants).sum();
    eprintln!("{last} mutants of {} files", files.len());
    let tree = Tree::new(unit, root(), &target);
    let (programs, refused) = tree.build(&files, last)?;
    let reach = trace::trace(&tree, &programs, last, options.jobs)?;
    eprintln!(
        "{} tests of {} programs are traced",
        reach.tests.len(),
        programs.len()
    );
    let names = reach.tests.iter().map(|test| test.name.as_str());
    let killers = Killers::new(Affinity::new(names));
    let runner = Runner {
        tree: &tree,
        programs: &programs,
        reach: &reach,
        jobs: options.jobs,
        budget: options.budget,
        killers: &killers,
    };
    let mut state = State::read(&target.join("caught.tsv"));
    let mutants = Mutants::new(taken, &files, &refused);
    for key in mutants.keys.iter().skip(1) {
        if let Some(test) = state.killer(key).and_then(|test| reach.find(test)) {
            killers.note(key, test);
        }
    }
    let mut order: Vec<usize> = (0..files.len()).collect();
    order.retain(|&index| options.names(&files[index].path).is_some());
    order.sort_by_key(|&index| options.names(&files[index].path));
    for index in order {
        let file = &files[index];
        let was_caught = |key: &Key| {
            let row = table.get(&key.file);
            state.is_caught(key) || row.is_some_and(|row| row.has_caught(key))
        };
        let is_due = |id: &Id| !options.survivors || !was_caught(&mutants.key(*id));
        let ids = file.first..file.first + file.mutants();
        let live = ids.filter(|id| mutants.live.contains(id));
        let due: Vec<Id> = live.filter(is_due).collect();
        let mut fates = BTreeMap::new();
        run::run(
            &runner,
            &due,
            |id| mutants.key(id),
            |id, fate| {
                state.note(&mutants.key(id), &fate);
                if matches!(fate, Fate::Survived | Fate::Unreached) {
                    eprintln!("{fate:?}: {}", mutants.describe(id));
                }
                fates.insert(id, fate);
            },
        );
        let row = row(taken[index], file, &refused, &fates);
        eprintln!(
            "{}: {} mutants, {} caught, {} s since the start",
            file.path,
            row.mutants,
            row.caught,
            start.elapsed().as_secs()
        );
        table.insert(file.path.clone(), row);
        // Whoever ends the run here keeps what it has found.
        table::write(root(), table)?;
    }
    Ok(())
}

/// The row of a file. A mutant without a fate was caught by an earlier run.
fn row(source: &Source, file: &File, refused: &Refused, fates: &BTreeMap<Id, Fate>) -> Row {
    let mut row = Row {
        code: source.code.clone(),
        ..Row::default()
    };
    let mut id = file.first;
    for site in &file.sites {
        for alternative in &site.alternatives {
            let fate = fates.get(&id);
            if refused.keeps_const(site) {
                row.unswitched += 1;
            } else if refused.mutants.contains(&id) {
                row.uncompiled += 1;
            } else {
                row.mutants += 1;
                match fate {
                    Some(Fate::Survived | Fate::Unreached) => row.survivors.push(Survivor {
                        line: site.line,
                        function: site.function.clone(),
                        change: alternative.change.clone(),
                        reached: fate == Some(&Fate::Survived),
                    }),
                    Some(Fate::Caught(_) | Fate::TimedOut) | None => row.caught += 1,
                }
            }
            id += 1;
        }
    }
    row
}

/// The mutants of all files by their numbers.
struct Mutants {
    keys: Vec<Key>,
    lines: Vec<usize>,
    /// Those that compile.
    live: BTreeSet<Id>,
}

impl Mutants {
    fn new(taken: &[&Source], files: &[File], refused: &Refused) -> Mutants {
        let mut mutants = Mutants {
            keys: vec![Key::default()],
            lines: vec![0],
            live: BTreeSet::new(),
        };
        for (source, file) in taken.iter().zip(files) {
            let mut ordinals = BTreeMap::new();
            for site in &file.sites {
                for alternative in &site.alternatives {
                    let id = mutants.keys.len() as Id;
                    if !refused.keeps_const(site) && !refused.mutants.contains(&id) {
                        mutants.live.insert(id);
                    }
                    let words = (site.function.clone(), alternative.change.clone());
                    let ordinal: &mut usize = ordinals.entry(words).or_default();
                    mutants.keys.push(Key {
                        file: file.path.clone(),
                        code: source.code.clone(),
                        function: site.function.clone(),
                        change: alternative.change.clone(),
                        ordinal: *ordinal,
                    });
                    mutants.lines.push(site.line);
                    *ordinal += 1;
                }
            }
        }
        mutants
    }

    fn key(&self, id: Id) -> Key {
        self.keys[id as usize].clone()
    }

    fn describe(&self, id: Id) -> String {
        let Key {
            file,
            function,
            change,
            ..
        } = &self.keys[id as usize];
        format!("{file}:{}, {function}, {change}", self.lines[id as usize])
    }
}
