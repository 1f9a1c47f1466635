//! What is kept of a blob: refused, or written as it was. It survives the loss of fewer places than it has, and with more copies of no
//! fewer than before.
#![no_main]

use xebec_placement::Wanted;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let mut all = Wanted::default();
    for line in text.lines().take(4) {
        let Ok(wanted) = line.parse::<Wanted>() else {
            continue;
        };
        assert_eq!(wanted.to_string(), line);
        assert_eq!(wanted.is_empty(), wanted.places().is_empty());
        assert!(wanted.is_empty() || wanted.survives() < wanted.places().len());
        all = all.union(&wanted);
        let text = all.to_string();
        assert_eq!(text.parse::<Wanted>().as_ref(), Ok(&all), "{text}");
    }
});
