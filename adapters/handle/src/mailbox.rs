//! What anybody may ask of the one owner of a machine: a box that many fill and one empties. Knows not what is in it.

use std::mem;
use std::sync::Mutex;
use std::task::Waker;

use crate::promise::{lock, remember};

/// Letters to the owner. It has no bound: the owner empties all of it at each step, and the machine has bounds for what it takes.
pub(crate) struct Mailbox<T>(Mutex<Inside<T>>);

struct Inside<T> {
    letters: Vec<T>,
    owner: Option<Waker>,
    is_closed: bool,
}

impl<T> Mailbox<T> {
    pub(crate) const fn new() -> Mailbox<T> {
        Mailbox(Mutex::new(Inside {
            letters: Vec::new(),
            owner: None,
            is_closed: false,
        }))
    }

    /// Puts a letter in, and wakes the owner if it is the first one. Gives it back where there is no owner any more.
    pub(crate) fn post(&self, letter: T) -> Result<(), T> {
        let waker = {
            let mut inside = lock(&self.0);
            if inside.is_closed {
                return Err(letter);
            }
            inside.letters.push(letter);
            let is_first = inside.letters.len() == 1;
            inside.owner.as_ref().filter(|_| is_first).cloned()
        };
        waker.into_iter().for_each(Waker::wake);
        Ok(())
    }

    /// Takes all letters out, into a box that is empty.
    pub(crate) fn empty_into(&self, letters: &mut Vec<T>) {
        mem::swap(&mut lock(&self.0).letters, letters);
    }

    /// Who is to be woken from now on. Returns whether letters are there already, of which it is not told.
    pub(crate) fn belongs_to(&self, owner: &Waker) -> bool {
        let mut inside = lock(&self.0);
        let replaced = remember(&mut inside.owner, owner);
        let has_letters = !inside.letters.is_empty();
        drop(inside);
        drop(replaced);
        has_letters
    }

    /// Nobody will empty it any more. Returns what is left in it.
    pub(crate) fn close(&self) -> Vec<T> {
        let mut inside = lock(&self.0);
        inside.is_closed = true;
        let owner = inside.owner.take();
        let letters = mem::take(&mut inside.letters);
        drop(inside);
        drop(owner);
        letters
    }
}
