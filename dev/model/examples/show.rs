//! Prints what files of a fuzzing corpus contain, as operations of the target or as text: `cargo run -p model --example show -- <target> <file>...`.

fn main() {
    let mut args = std::env::args().skip(1);
    let target = args.next().expect("the name of a fuzz target");
    for file in args {
        let data = std::fs::read(&file).expect("a file");
        println!("{file}\n{}", model::show(&target, &data));
    }
}
