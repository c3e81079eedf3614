//! Writes the values that a mutant returns instead of a function's result. The compiler decides which of them fit.

use syn::{GenericArgument, PathArguments, ReturnType, Type, TypePath};

/// A value of any type that has a default. For a type without one, the mutant does not compile and is dropped.
const DEFAULT: &str = "Default::default()";

/// The most values for a tuple.
const MAX_PRODUCT: usize = 4;

/// The values for a function with this result, as expressions.
pub(crate) fn of_result(result: &ReturnType) -> Vec<String> {
    match result {
        ReturnType::Default => vec!["()".to_owned()],
        ReturnType::Type(_, ty) => of_type(ty),
    }
}

fn of_type(ty: &Type) -> Vec<String> {
    match ty {
        Type::Tuple(tuple) => product(tuple.elems.iter().map(of_type).collect()),
        Type::Path(path) => of_path(path),
        Type::Reference(reference) if reference.mutability.is_none() => match &*reference.elem {
            Type::Path(path) if path.path.is_ident("str") => owned(&["\"\"", "\"xyzzy\""]),
            Type::Slice(_) => owned(&["&[]"]),
            _ => Vec::new(),
        },
        Type::Paren(inner) => of_type(&inner.elem),
        _ => Vec::new(),
    }
}

fn of_path(path: &TypePath) -> Vec<String> {
    let Some(last) = path.path.segments.last() else {
        return Vec::new();
    };
    let arguments = match &last.arguments {
        PathArguments::AngleBracketed(list) => list.args.iter().filter_map(as_type).collect(),
        PathArguments::None | PathArguments::Parenthesized(_) => Vec::new(),
    };
    let first = || arguments.first().map(|ty| of_type(ty)).unwrap_or_default();
    match last.ident.to_string().as_str() {
        "bool" => owned(&["true", "false"]),
        "u8" | "u16" | "u32" | "u64" | "u128" | "usize" => owned(&["0", "1"]),
        "i8" | "i16" | "i32" | "i64" | "i128" | "isize" => owned(&["0", "1", "-1"]),
        "f32" | "f64" => owned(&["0.0", "1.0"]),
        "String" => owned(&[DEFAULT, "\"xyzzy\".into()"]),
        "Ordering" => owned(&[
            "core::cmp::Ordering::Less",
            "core::cmp::Ordering::Equal",
            "core::cmp::Ordering::Greater",
        ]),
        "Option" => {
            let some = first().into_iter().map(|value| format!("Some({value})"));
            core::iter::once("None".to_owned()).chain(some).collect()
        }
        "Result" => first()
            .into_iter()
            .map(|value| format!("Ok({value})"))
            .collect(),
        "Vec" => {
            let one = first().into_iter().take(1);
            let one = one.map(|value| format!("core::iter::once({value}).collect()"));
            core::iter::once(DEFAULT.to_owned()).chain(one).collect()
        }
        _ => owned(&[DEFAULT]),
    }
}

fn as_type(argument: &GenericArgument) -> Option<&Type> {
    match argument {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    }
}

/// All tuples of these values, up to [`MAX_PRODUCT`].
fn product(parts: Vec<Vec<String>>) -> Vec<String> {
    let mut tuples = vec![String::new()];
    for values in parts {
        let mut longer = Vec::new();
        for tuple in &tuples {
            longer.extend(values.iter().map(|value| format!("{tuple}{value}, ")));
        }
        longer.truncate(MAX_PRODUCT);
        tuples = longer;
    }
    let in_parentheses = |tuple: String| format!("({})", tuple.trim_end());
    tuples.into_iter().map(in_parentheses).collect()
}

fn owned(values: &[&str]) -> Vec<String> {
    values.iter().map(|&value| value.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::of_result;

    fn values(result: &str) -> Vec<String> {
        of_result(&syn::parse_str(result).expect("it is a result"))
    }

    #[test]
    fn option_is_none_or_holds_each_value_of_its_type() {
        assert_eq!(
            values("-> Option<bool>"),
            ["None", "Some(true)", "Some(false)"]
        );
        assert_eq!(values("-> Option<&Entry>"), ["None"]);
    }

    #[test]
    fn result_holds_the_values_of_its_first_type() {
        assert_eq!(values("-> Result<(), Error>"), ["Ok(())"]);
        assert_eq!(values("-> Result<u8, Error>"), ["Ok(0)", "Ok(1)"]);
    }

    #[test]
    fn tuple_has_at_most_four_values() {
        assert_eq!(values("-> (bool, bool, bool)").len(), 4);
        assert_eq!(values("-> (u8, Kind)")[0], "(0, Default::default(),)");
    }

    #[test]
    fn mutable_borrow_and_opaque_type_have_no_value() {
        assert!(values("-> &mut Entry").is_empty());
        assert!(values("-> impl Iterator<Item = u8>").is_empty());
    }
}
