//! What is said of layers that are read whole: each reason once, with all the layers that it is of.

/// One notice for each reason. `reasons` has one entry for each layer of the image, the lowest first.
pub(super) fn notices(reasons: &[Option<&str>]) -> Vec<String> {
    let mut different: Vec<&str> = Vec::new();
    for reason in reasons.iter().flatten() {
        if !different.contains(reason) {
            different.push(reason);
        }
    }
    let notices = different.into_iter().map(|reason| {
        let numbers = (1..).zip(reasons);
        let numbers: Vec<usize> = numbers
            .filter(|(_, other)| **other == Some(reason))
            .map(|(number, _)| number)
            .collect();
        let (layers, verb) = match numbers.len() {
            1 => ("layer", "is"),
            _ => ("layers", "are"),
        };
        format!(
            "{layers} {} of {} {verb} read whole now, so this start is not lazy: {reason}",
            listed(&numbers),
            reasons.len()
        )
    });
    notices.collect()
}

/// Ascending numbers as people write them: `1 to 3, 5`.
fn listed(numbers: &[usize]) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for &number in numbers {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => runs.push((number, number)),
        }
    }
    let words = runs.into_iter().map(|(first, last)| match last - first {
        0 => first.to_string(),
        1 => format!("{first}, {last}"),
        _ => format!("{first} to {last}"),
    });
    words.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_that_layers_share_is_said_once() {
        let reasons = [
            Some("refused"),
            Some("refused"),
            Some("refused"),
            None,
            Some("none"),
            Some("refused"),
        ];
        assert_eq!(
            notices(&reasons),
            [
                "layers 1 to 3, 6 of 6 are read whole now, so this start is not lazy: refused",
                "layer 5 of 6 is read whole now, so this start is not lazy: none",
            ]
        );
        assert!(notices(&[None, None]).is_empty());
        assert_eq!(listed(&[1, 2, 4]), "1, 2, 4");
    }
}
