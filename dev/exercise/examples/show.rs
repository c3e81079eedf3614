//! Prints the script that a file of the `client_stdio` corpus holds: `cargo run -p exercise --example show -- <file>`.

use exercise::{Op, Setup, Tape};

fn main() {
    for file in std::env::args().skip(1) {
        let data = std::fs::read(&file).expect("a file");
        let mut tape = Tape::new(&data);
        println!("{file}\n{:#?}", Setup::read(&mut tape));
        for (at, op) in Op::read_all(&mut tape).iter().enumerate() {
            println!("{at:>4} {op:?}");
        }
    }
}
