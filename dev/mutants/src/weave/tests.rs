use super::{File, Refused, last_names, weave};
use crate::find;

fn file(source: &str) -> File {
    File {
        path: "src/a.rs".to_owned(),
        source: source.to_owned(),
        sites: find::sites(source).expect("it is Rust"),
        first: 1,
    }
}

#[test]
fn inner_mutant_is_only_in_the_unchanged_branch() {
    let file = file("fn f() -> &'static T { g(a == b || c == d) }");
    let woven = weave(&file, &Refused::default());
    let expected = "fn f() -> &'static T { g((if crate::__mutant::on(1) { (a == b) && (c == d) } else { \
         (if crate::__mutant::on(2) { (a) != (b) } else { a == b }) || \
         (if crate::__mutant::on(3) { (c) != (d) } else { c == d }) })) }";
    assert_eq!(woven.text, expected);
}

#[test]
fn statement_arm_and_body_have_their_switches() {
    let file = file("fn f() { g(); match h { 1 => 2, _ => 3 } }");
    let woven = weave(&file, &Refused::default());
    let expected = "fn f() { if crate::__mutant::on(1) { return (); } \
         if !crate::__mutant::on(2) { g(); } \
         match h { 1 if !crate::__mutant::on(3) => 2, _ => 3 } }";
    assert_eq!(woven.text, expected);
}

#[test]
fn refused_mutant_is_left_out_and_a_needed_const_stays() {
    let source = "impl A { const fn b() -> bool { !c } }";
    let mut refused = Refused::default();
    let woven = weave(&file(source), &refused);
    assert!(
        woven
            .text
            .starts_with("impl A {  fn b() -> bool { if crate::__mutant::on(1) { return true; }")
    );
    refused.mutants.extend([1, 2, 3]);
    assert_eq!(
        weave(&file(source), &refused).text,
        "impl A {  fn b() -> bool { !c } }"
    );
    refused.mutants.clear();
    refused.constant.insert("A::b".to_owned());
    assert_eq!(weave(&file(source), &refused).text, source);
}

#[test]
fn offset_of_an_error_names_the_mutant() {
    let file = file("fn f() -> &'static T { g(a < b) }");
    let woven = weave(&file, &Refused::default());
    let at = |text: &str| woven.mutants_at(woven.text.find(text).expect("it is there"));
    assert_eq!(at("(a) == (b)"), [2]);
    assert_eq!(at("a < b"), [1, 2, 3]);
    assert!(at("fn f").is_empty());
}

#[test]
fn callees_of_a_needed_const_stay_const() {
    let source =
        "impl A { const fn b(self) -> u8 { self.c() + d(1) } const fn c(self) -> u8 { 2 } }
        const fn d(e: u8) -> u8 { e } const fn odd(e: u8) -> u8 { e }";
    let mut refused = Refused::default();
    refused.constant.insert("A::b".to_owned());
    refused.add_callees(&[file(source)]);
    let expected = ["A::b", "A::c", "d"].map(str::to_owned);
    assert_eq!(refused.constant, expected.into());
}

#[test]
fn last_names_are_the_type_and_the_function() {
    assert_eq!(last_names("util::Sorted::<K, V>::new"), "Sorted::new");
    assert_eq!(last_names("client::parse"), "parse");
}
