//! Every kind of file system, three moves each: clean after each of them, and every file what it was.

use super::{Case, Image, LayoutReport, SHAPES, Use, knobs};
use anyhow::{Context, Result, ensure};
use headstart_layout::NO_ROOM;

const MIB: u64 = 1 << 20;
/// So often the files of an image are moved.
const MOVES: usize = 3;

/// What came of a case.
#[derive(Debug)]
pub struct Done {
    /// What each of the moves said.
    pub moves: Vec<LayoutReport>,
    /// Files that were there to move.
    pub files: usize,
}

/// A case and the order in which its files are used.
pub type Cell = (Case, Use);

fn cells(size: u64, full: &[u64], uses: &[Use], shapes: &[usize]) -> Vec<Cell> {
    let mut cells = Vec::new();
    for shape in shapes {
        for full in full {
            for order in uses {
                let case = Case {
                    size,
                    full: *full,
                    shape: &SHAPES[*shape],
                    seed: size + full * 100 + *shape as u64,
                };
                cells.push((case, *order));
            }
        }
    }
    cells
}

const USES: [Use; 3] = [Use::Random, Use::Sequential, Use::Reversed];

/// All there is to try, which takes about half an hour.
pub fn all() -> Vec<Cell> {
    let every: Vec<usize> = (0..SHAPES.len()).collect();
    let mut cells_of = cells(100 * MIB, &[10, 30, 50, 70, 80, 90, 95, 99], &USES, &every);
    cells_of.extend(cells(1024 * MIB, &[10, 50, 70, 90, 99], &USES, &every));
    // Without extents each block of what fills it would have to be written.
    let sparse: Vec<usize> = (0..SHAPES.len()).filter(|index| is_sparse(*index)).collect();
    cells_of.extend(cells(8192 * MIB, &[10, 70, 99], &USES, &sparse));
    cells_of
}

fn is_sparse(shape: usize) -> bool {
    SHAPES[shape].movable && SHAPES[shape].tuned.is_none()
}

/// Each shape, fill and order at least once.
pub fn some() -> Vec<Cell> {
    let full = [10, 90, 50, 70, 99, 30, 80];
    let one = |index: usize| {
        let size = if index == 2 { 1024 * MIB } else { 100 * MIB };
        let order = USES[index % USES.len()];
        cells(size, &full[index % full.len()..][..1], &[order], &[index])
    };
    (0..SHAPES.len()).flat_map(one).collect()
}

/// Moves the files of one case three times.
pub fn try_one((case, order): &Cell) -> Result<Done> {
    let mut image = Image::new(case)?;
    let mut moves = Vec::new();
    for number in 1..=MOVES {
        image.learn(*order)?;
        let before = knobs(&image.fs.node())?;
        let said = image.apply().with_context(|| format!("move {number}"))?;
        let after = knobs(&image.fs.node())?;
        ensure!(
            before == after,
            "a knob is not as it was after move {number}: {:?}",
            before
                .iter()
                .filter(|(path, value)| after.get(*path) != Some(value))
                .collect::<Vec<_>>()
        );
        image
            .check()
            .with_context(|| format!("after move {number}: {said:?}"))?;
        judge(case, &image, &said).with_context(|| format!("move {number}: {said:?}"))?;
        moves.push(said);
    }
    Ok(Done {
        moves,
        files: image.files.len(),
    })
}

/// What it said is what can be.
fn judge(case: &Case, image: &Image, said: &LayoutReport) -> Result<()> {
    let count = image.files.len() as u64;
    match said.state.as_str() {
        "complete" => {
            ensure!(case.shape.movable, "there is nothing that can be moved");
            let left: u64 = said.left.values().sum();
            ensure!(
                said.files + left == count,
                "of {count} files it tells of {left} and {}",
                said.files
            );
            let no_room = said.left.get(NO_ROOM).copied().unwrap_or(0);
            ensure!(no_room == 0 || case.full >= 70, "there was room: {:?}", said.left);
            // Most of them that there was room for, where no feature keeps them.
            let fit = count - no_room;
            let least = match case.shape.tuned {
                Some(_) => fit / 4,
                None => fit * 3 / 4,
            };
            ensure!(
                said.files >= least.max(1),
                "only {} of {count} were moved",
                said.files
            );
        }
        "declined" => {
            let room = said.why.contains("stay so") || said.why.contains("room");
            ensure!(
                !case.shape.movable || (room && case.full >= 70),
                "it was to be moved: {}",
                said.why
            );
        }
        state => anyhow::bail!("it is {state}"),
    }
    Ok(())
}
