use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Deserialize;

use super::*;

#[derive(Serialize)]
struct Report<T> {
    pages: T,
}

mod other {
    use serde::Serialize;

    #[derive(Serialize)]
    pub(super) struct Report {
        pub(super) lines: u32,
    }

    #[derive(Serialize)]
    #[serde(rename = "Report")]
    pub(super) struct Same {
        pub(super) pages: u32,
    }
}

#[test]
fn names_kinds_and_contents_count() {
    let all = [
        gist(&Report { pages: 1_u32 }),
        gist(&Report { pages: 2_u32 }),
        gist(&Report { pages: 1_i32 }),
        gist(&Report { pages: 1_u64 }),
        gist(&Report { pages: Some(1_u32) }),
        gist(&Report { pages: [1_u32] }),
        gist(&Report { pages: vec![1_u32] }),
        gist(&Report { pages: "1" }),
        gist(&other::Report { lines: 1 }),
        gist(&1_u32),
        gist(&"abcdefgh"),
        gist(&"abcdefgh\0"),
        gist(&vec![0_u8; 2]),
        gist(&vec![0_u8; 3]),
        gist(&(1_u8, 2_u8)),
        gist(&(2_u8, 1_u8)),
        gist(&Ok::<u8, u8>(1)),
        gist(&Err::<u8, u8>(1)),
        gist(&BTreeMap::from([(1, 2)])),
        gist(&BTreeMap::from([(2, 1)])),
    ];
    for (place, one) in all.iter().enumerate() {
        assert!(one.is_some() && !all[..place].contains(one), "{place}");
    }
    assert_eq!(all[0], gist(&other::Same { pages: 1 }));
}

#[test]
fn sets_and_maps_have_no_order() {
    // Each has seeds of its own, and so another order.
    let sets: HashSet<_> = (0..20).map(|_| gist(&(0..50).collect::<HashSet<u32>>())).collect();
    let maps: HashSet<_> =
        (0..20).map(|_| gist(&(0..50).map(|n| (n, "x")).collect::<HashMap<_, _>>())).collect();
    assert_eq!((sets.len(), maps.len()), (1, 1));
}

#[derive(Serialize, Deserialize)]
enum Choice {
    Field {
        #[serde(skip_serializing_if = "Option::is_none")]
        left_out: Option<u8>,
    },
}

#[test]
fn a_field_that_is_left_out_makes_a_value_unfit() {
    assert!(gist(&Choice::Field { left_out: Some(1) }).is_some());
    assert_eq!(gist(&[Choice::Field { left_out: None }]), None);
}

/// Records of other releases hold it.
#[test]
fn it_never_changes() {
    assert_eq!(gist(&Report { pages: 7_u32 }), Some(0x7d6fa6d2a7327322));
    assert_eq!(gist(&(1_i8, "text", None::<()>, vec![1.5_f64])), Some(0x5e8c936d172380cd));
}
