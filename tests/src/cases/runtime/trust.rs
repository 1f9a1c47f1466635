//! A recording brings pages only where it rests on as much as the index that it is used with.

use anyhow::{Context, Result, ensure};

use super::support::{Published, Service, expect_lazy, expect_recorded, number, problem, push_signed};
use crate::runner::Outcome;
use crate::world::World;

/// How often a proof is asked for right after a start.
const STARTS: usize = 5;

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
    // Pages that had been brought in under the weaker rule, and were not compared yet, are compared before they count.
    lab.trust_key("plain", "ours")?;
    service.expect_truth("plain", &names.digest)?;
    Ok(Outcome::Passed(format!("unsigned: {said:?}; signed: used")))
}

/// A signature on a recording makes no more of an index that the signer's host only found in a registry. The index is not carried, not by
/// the zone of an earlier recording either. A host that has it by a start by tag does not take it by digest.
pub(super) fn signed_over_listed(world: &World) -> Result<Outcome> {
    let service = Service::new(world)?;
    let lab = &service.lab;
    let key = lab.make_key("ours")?;
    let names = lab.push_indexed(&service.image, "app")?;
    let unsigned = Published::new(lab, "app", &service.record("recorder", &[&names.tag])?)?;
    ensure!(unsigned.recording.indexes.len() == 2, "nothing is carried");
    // This host starts by tag, so it has the index.
    lab.trust_key("victim", "ours")?;
    lab.xebec("victim", &["pull", &names.tag])?.expect(0, &[])?;
    lab.try_mount("victim", &names.digest, &["--require-lazy"])?
        .expect(6, &["named by digest"])?;
    for words in [
        &["--sign", &key, &names.tag][..],
        &["--sign", &key, "--merge", &names.tag],
    ] {
        let signed = Published::new(lab, "app", &service.record("recorder", words)?)?;
        let carried = &signed.recording.indexes;
        ensure!(carried.is_empty(), "{words:?}: carries {carried:?}");
    }
    for root in ["victim", "other"] {
        lab.trust_key(root, "ours")?;
        let run = ["run", "--rm", "--require-lazy", &names.digest];
        lab.xebec(root, &run)?.expect(125, &["named by digest"])?;
    }
    lab.try_mount("victim", &names.digest, &["--require-lazy"])?
        .expect(6, &["named by digest"])?;
    Ok(Outcome::Passed("a listed index stays a listed index".to_owned()))
}

/// A proof that is asked for right after a start by a recording waits for the pages that the start brings, and does not fail.
pub(super) fn proven_at_once(world: &World) -> Result<Outcome> {
    let service = Service::new(world)?;
    let lab = &service.lab;
    let names = lab.push_indexed(&service.image, "app")?;
    service.record("recorder", &[&names.tag])?;
    for number in 0..STARTS {
        let root = format!("start-{number}");
        expect_recorded(&service.start(&root, &[&names.tag])?)?;
        let proof = lab.xebec(&root, &["check", "--prove", &names.tag])?;
        proof.expect(0, &[]).with_context(|| root.clone())?;
    }
    Ok(Outcome::Passed(format!("{STARTS} of {STARTS} proofs at once")))
}
