//! Keeps the traces of a test program until it is built again, so that only programs with new tests are traced.

use core::time::Duration;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::UNIX_EPOCH;

use crate::trace::Traced;
use crate::tree::Program;

/// The traces of one program by the names of its tests.
pub(crate) struct Cache(BTreeMap<String, Traced>);

impl Cache {
    /// Reads the traces of a program; there are none if it was built since.
    pub(crate) fn read(program: &Program) -> Cache {
        let text = fs::read_to_string(path(program)).unwrap_or_default();
        let mut lines = text.lines();
        if lines.next() != Some(stamp(program).as_str()) {
            return Cache(BTreeMap::new());
        }
        Cache(lines.filter_map(read_line).collect())
    }

    pub(crate) fn get(&self, test: &str) -> Option<&Traced> {
        self.0.get(test)
    }

    /// Writes the traces of a program beside it. Those that cannot be written are made again.
    pub(crate) fn write<'a>(
        program: &Program,
        traces: impl Iterator<Item = (&'a String, &'a Traced)>,
    ) {
        let mut text = stamp(program) + "\n";
        for (test, traced) in traces {
            match traced {
                Ok((duration, reached)) => {
                    text += &format!("{test}\t{}\t", duration.as_micros());
                    for id in reached {
                        text += &format!("{id:x} ");
                    }
                }
                Err(reason) => text += &format!("{test}\t-\t{reason}"),
            }
            text.push('\n');
        }
        let _ = fs::write(path(program), text);
    }
}

fn read_line(line: &str) -> Option<(String, Traced)> {
    let (test, rest) = line.split_once('\t')?;
    let (duration, rest) = rest.split_once('\t')?;
    if duration == "-" {
        return Some((test.to_owned(), Err(rest.to_owned())));
    }
    let ids = rest.split_whitespace();
    let ids: Result<_, _> = ids.map(|id| u32::from_str_radix(id, 16)).collect();
    let duration = Duration::from_micros(duration.parse().ok()?);
    Some((test.to_owned(), Ok((duration, ids.ok()?))))
}

fn path(program: &Program) -> PathBuf {
    program.path.with_extension("traces")
}

/// Says when the program was built.
fn stamp(program: &Program) -> String {
    let metadata = fs::metadata(&program.path).ok();
    let built = metadata.and_then(|it| it.modified().ok()?.duration_since(UNIX_EPOCH).ok());
    format!("built {}", built.unwrap_or_default().as_nanos())
}
