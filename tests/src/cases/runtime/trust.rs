//! A recording brings pages only where it rests on as much as the index that it is used with.

use anyhow::{Context, Result, ensure};

use super::{Service, expect_lazy, expect_recorded, number, problem, push_signed};
use crate::runner::Outcome;
use crate::world::World;

/// Signed index, unsigned recording: nothing of it. Both signed, or none, by tag: used. By digest with nothing signed: the
/// index is refused, as ever.
pub(super) fn trust(world: &World) -> Result<Outcome> {
    let service = Service::new(world)?;
    let lab = &service.lab;
    let key = lab.make_key("ours")?;
    let names = push_signed(&service, &key)?;
    service.record("recorder", &[&names.tag])?;
    let mut said = Vec::new();
    for (root, reference) in [("weak-tag", &names.tag), ("weak-digest", &names.digest)] {
        lab.trust_key(root, "ours")?;
        let stats = service.start(root, &[reference])?;
        expect_lazy(&stats).context(root)?;
        said.push(problem(&stats)?);
    }
    ensure!(
        said.last()
            .is_some_and(|said| said.as_ref().is_some_and(|said| said.contains("not used"))),
        "by digest it is said: {said:?}"
    );
    // Nothing counts as signed here: by tag both rest on the registry, by digest neither suffices.
    let stats = service.start("plain", &[&names.tag])?;
    expect_recorded(&stats)?;
    lab.try_mount("plain", &names.digest, &["--require-lazy"])?
        .expect(6, &["named by digest"])?;

    service.record("recorder", &["--sign", &key, &names.tag])?;
    for (root, reference) in [("strong-tag", &names.tag), ("strong-digest", &names.digest)] {
        lab.trust_key(root, "ours")?;
        let stats = service.start(root, &[reference])?;
        expect_recorded(&stats).context(root)?;
        ensure!(
            number(&stats, "/runtime_image/injected")? > 0,
            "{root}: {stats:#}"
        );
        service.expect_truth(root, reference)?;
        service.expect_sound(root, reference)?;
    }
    // What had been brought in under the weaker rule, and was not compared yet, is compared before it counts.
    lab.trust_key("plain", "ours")?;
    service.expect_truth("plain", &names.digest)?;
    Ok(Outcome::Passed(format!("unsigned: {said:?}; signed: used")))
}
