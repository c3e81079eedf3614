//! Implements `everlink completions` and `everlink man`. Knows the commands only from what clap reports about them.

use std::io::{self, Write};

use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::args::Args;

/// Returns the completion script for a shell.
pub(crate) fn completions(shell: Shell) -> String {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "everlink", &mut text);
    String::from_utf8_lossy(&text).trim_end().to_owned()
}

/// Returns one manual page for all commands, in the format of `man`.
pub(crate) fn manual() -> io::Result<String> {
    let mut whole = Args::command().disable_help_subcommand(true);
    whole.build();
    let mut page = Vec::new();
    let man = Man::new(whole.clone());
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    let visible = whole.get_subcommands();
    for command in visible.filter(|command| !command.is_hide_set()) {
        add(&mut page, command)?;
    }
    man.render_extra_section(&mut page)?;
    man.render_version_section(&mut page)?;
    let page = String::from_utf8_lossy(&page);
    // Renames the section EXTRA to EXAMPLES, and keeps the line breaks of the examples.
    let page = page.replace("EXTRA\nExamples:\n", "EXAMPLES\n.nf\n");
    Ok(page.trim_end().to_owned())
}

/// Adds a section for one command. The command's own sections become its subsections.
fn add(page: &mut Vec<u8>, command: &Command) -> io::Result<()> {
    let mut sections = Vec::new();
    let man = Man::new(command.clone());
    man.render_synopsis_section(&mut sections)?;
    man.render_description_section(&mut sections)?;
    man.render_options_section(&mut sections)?;
    if command.get_after_help().is_some() {
        man.render_extra_section(&mut sections)?;
    }
    let sections = String::from_utf8_lossy(&sections).replace("\n.SH ", "\n.SS ");
    let name = command.get_name().to_uppercase();
    writeln!(page, ".SH \"EVERLINK {name}\"")?;
    page.write_all(sections.as_bytes())
}
