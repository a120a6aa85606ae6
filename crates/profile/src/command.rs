//! A group's program and its arguments.

use isthmus_common::fault::{Fault, fault};
use toml::Spanned;

use crate::limits::COMMAND_WORDS_MAX;
use crate::written::Words;

/// The words of a group's command, checked: a launcher is to take the first for the program, and
/// the others for its arguments.
pub(crate) fn command(written: Spanned<Words>) -> Result<Vec<String>, Fault> {
    let words = &written.get_ref().0;
    let Some(program) = words.first() else {
        return fault(
            &written,
            "no program: give it with its arguments, such as [\"./worker\", \"--fast\"], or leave `command` out",
        );
    };
    if program.get_ref().is_empty() || program.get_ref().starts_with('-') {
        return fault(program, "this is no program: the first word of `command` names it");
    }
    if let Some(word) = words.get(COMMAND_WORDS_MAX) {
        let message = format!("{} words are too many, at most {COMMAND_WORDS_MAX}", words.len());
        return fault(word, message);
    }
    for word in words {
        if word.get_ref() == ":" {
            let message = "launchers take the word \":\" for the end of a program's arguments: \
                           start the program by a script that adds it";
            return fault(word, message);
        }
        if word.get_ref().contains('\0') {
            return fault(word, "no word of a command can have the character U+0000");
        }
    }
    Ok(written.into_inner().0.into_iter().map(Spanned::into_inner).collect())
}
