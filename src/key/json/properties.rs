//! What holds for all texts; another reader of JSON is the judge.

use proptest::{collection::vec, prelude::*};
use serde_json::{Value, json};

use super::{
    order::compare,
    scan,
    tests::{canonical, without, written},
    *,
};

/// Any value; few names and strings, so that alike ones are met.
fn value() -> impl Strategy<Value = Value> {
    let text = prop_oneof!["[a-c\"\\\\/\n\u{1}]{0,2}", "[\u{e9}\u{ffff}\u{fb33}\u{1f600}]{0,2}"];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3_i64..20).prop_map(Value::from),
        text.clone().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 5, move |inner| {
        prop_oneof![
            vec(inner.clone(), 0..5).prop_map(Value::from),
            vec((text.clone(), inner), 0..5).prop_map(|members| members.into_iter().collect()),
        ]
    })
}

/// Writes a value in one of its many ways.
fn write(value: &Value, dice: &mut impl FnMut(usize) -> usize, out: &mut String) {
    let space = |dice: &mut dyn FnMut(usize) -> usize, out: &mut String| {
        out.push_str(["", "", "", " ", "\t\n", "\r "][dice(6)]);
    };
    space(dice, out);
    match value {
        Value::Array(elements) => {
            out.push('[');
            for (place, element) in elements.iter().enumerate() {
                out.push_str(if place > 0 { "," } else { "" });
                write(element, dice, out);
            }
            out.push(']');
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            out.push('{');
            let mut first = true;
            while !members.is_empty() {
                let (name, value) = members.swap_remove(dice(members.len()));
                out.push_str(if first { "" } else { "," });
                first = false;
                space(dice, out);
                write_text(name, dice, out);
                space(dice, out);
                out.push(':');
                write(value, dice, out);
            }
            out.push('}');
        }
        Value::String(text) => write_text(text, dice, out),
        other => out.push_str(&other.to_string()),
    }
    space(dice, out);
}

fn write_text(text: &str, dice: &mut impl FnMut(usize) -> usize, out: &mut String) {
    out.push('"');
    for char in text.chars() {
        let must = char < ' ' || char == '"' || char == '\\';
        if must || dice(3) == 0 {
            for unit in char.encode_utf16(&mut [0; 2]) {
                out.push_str(&match dice(2) {
                    0 => format!("\\u{unit:04x}"),
                    _ => format!("\\u{unit:04X}"),
                });
            }
        } else {
            out.push(char);
        }
    }
    out.push('"');
}

/// Text that is nearly JSON.
fn nearly() -> impl Strategy<Value = String> {
    const PIECES: &[&str] = &[
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"a\"",
        "\"b\"",
        "\"\\u0061\"",
        "\"\"",
        "1",
        "-0",
        "1.5e3",
        "0",
        "true",
        "null",
        " ",
        "\n",
        "\"\\ud800\"",
        "\"\\ud83d\\ude00\"",
        "\\",
        "\"",
        "{\"a\":",
        "{\"b\":1,\"a\":",
        "\"c\":[",
        "é",
        "\u{1}",
    ];
    vec(prop::sample::select(PIECES), 0..14).prop_map(|pieces| pieces.concat())
}

fn levels(value: &Value) -> usize {
    let inner = match value {
        Value::Array(elements) => elements.iter().map(levels).max(),
        Value::Object(members) => members.values().map(levels).max(),
        _ => return 0,
    };
    inner.unwrap_or(0) + 1
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn k4_one_value_has_one_form(value in value(), dice in vec(any::<u16>(), 1..60)) {
        let mut texts = [String::new(), String::new()];
        for (salt, text) in texts.iter_mut().enumerate() {
            let mut rolls = dice.iter().cycle().skip(salt);
            let mut roll = |sides: usize| (*rolls.next().unwrap() as usize + salt) % sides;
            write(&value, &mut roll, text);
        }
        let [one, other] = texts.map(|text| canonical(&text).expect(&text));
        prop_assert_eq!(&one, &other);
        // It is the value still, and its own canonical form.
        prop_assert_eq!(serde_json::from_str::<Value>(&one).unwrap(), value);
        prop_assert_eq!(canonical(&one).unwrap(), one);
    }

    #[test]
    fn equal_forms_have_equal_values(a in value(), b in value()) {
        let equal = canonical(&a.to_string()).unwrap() == canonical(&b.to_string()).unwrap();
        prop_assert_eq!(equal, a == b);
    }

    #[test]
    fn only_json_has_a_form(text in nearly()) {
        let oracle = serde_json::from_str::<Value>(&text);
        match canonical(&text) {
            Some(form) => {
                prop_assert_eq!(serde_json::from_str::<Value>(&form).unwrap(), oracle.unwrap());
            }
            None => if let Ok(value) = oracle {
                // The other reader takes the last of two members.
                prop_assert!(levels(&value) < 100 && text.matches("\":").count() > 1, "{}", text);
            }
        }
    }

    #[test]
    fn no_bytes_panic(bytes in vec(any::<u8>(), 0..40)) {
        let _ = written(&bytes, &Pointers::default());
    }

    #[test]
    fn leaving_out_is_as_if_it_had_not_been_there(value in value(), user in value()) {
        let Value::Object(without_user) = json!({"a": value, "z": [value]}) else { unreachable!() };
        let mut with_user = without_user.clone();
        with_user.insert("user".into(), user);
        let [with_user, without_user] = [with_user, without_user].map(|members| {
            without(&Value::from(members).to_string(), &["/user"]).unwrap()
        });
        prop_assert_eq!(with_user, without_user);
    }

    #[test]
    fn names_compare_as_utf_16(a in "[a-b\n\u{e000}\u{1f600}\u{d7ff}\u{ffff}]{0,3}", b in "[a-b\n\u{e000}\u{1f600}\u{d7ff}\u{ffff}]{0,3}") {
        let expected = a.encode_utf16().cmp(b.encode_utf16());
        prop_assert_eq!(compare(&scan::quote(&a), &scan::quote(&b)), expected);
    }
}
