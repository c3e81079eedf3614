//! The program itself, started as people start it.

mod guard;
