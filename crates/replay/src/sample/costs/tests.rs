use super::*;

/// Parts of these costs.
fn costs(seconds: &[f64]) -> Costs {
    let parts: Vec<Part> = seconds
        .iter()
        .enumerate()
        .map(|(request, data)| Part {
            request,
            path: 0.0,
            data: *data,
        })
        .collect();
    Costs {
        requests: Vec::new(),
        seconds: parts.iter().map(Part::seconds).sum(),
        parts,
    }
}

/// In how many of 4,000 samples nothing cold is found, and how much is found on average.
fn missed(costs: &Costs, looks: usize, is_cold: impl Fn(&Place) -> bool) -> (f64, f64) {
    const TIMES: u32 = 4000;
    let (mut missed, mut found) = (0, 0.0);
    for draw in 0..TIMES {
        let places = costs.places(looks, u64::from(draw) << 20);
        let weight: f64 = places.iter().map(|place| place.weight).sum();
        assert!((weight - costs.seconds).abs() < 1e-6 * costs.seconds, "{weight}");
        let cold: f64 = places
            .iter()
            .filter(|place| is_cold(place))
            .map(|place| place.weight)
            .sum();
        missed += u32::from(cold == 0.0);
        found += cold;
    }
    (
        f64::from(missed) / f64::from(TIMES),
        found / f64::from(TIMES) / costs.seconds,
    )
}

#[test]
fn a_cold_share_is_missed_as_seldom_as_stated_wherever_it_lies() {
    let many = costs(&[0.001; 1000]);
    let grown: Vec<f64> = (1..400).map(|n| f64::from(n).powi(2)).collect();
    let grown = costs(&grown);
    for looks in [5, 12, 40] {
        for share in [0.02, 0.1, 0.3] {
            let chance = (-(looks as f64) * share).exp();
            let count = (share * 1000.0) as usize;
            let (together, found) = missed(&many, looks, |place| place.part.request < count);
            assert!(
                together <= chance + 0.03 && (found - share).abs() < 0.1 * share + 0.01,
                "{together} {chance} {found}"
            );
            // At equal distances, which no equal steps may be in time with.
            let every = 1000 / count;
            let (apart, found) = missed(&many, looks, |place| place.part.request % every == 0);
            assert!(apart <= (-(looks as f64) / every as f64).exp() + 0.03, "{apart}");
            assert!((found - 1.0 / every as f64).abs() < 0.02, "{found}");
            // The beginning of each.
            let (beginnings, found) = missed(&grown, looks, |place| place.at < share * place.part.data);
            assert!(
                beginnings <= chance + 0.03 && (found - share).abs() < 0.02,
                "{beginnings} {found}"
            );
        }
    }
}

#[test]
fn what_costs_a_step_is_never_missed_and_the_more_it_costs_the_more_places_are_looked_at() {
    // 35 libraries, and what the program has of its own in one file.
    let mut seconds = vec![0.002; 35];
    seconds.insert(17, 0.04);
    let start = costs(&seconds);
    for looks in [5, 12, 40] {
        let (missed, found) = missed(&start, looks, |place| place.part.request == 17);
        assert_eq!(missed, 0.0, "{looks}");
        assert!((found - 0.04 / 0.11).abs() < 0.01, "{found}");
    }
    let places = start.places(40, 7);
    let of_it = places.iter().filter(|place| place.part.request == 17).count();
    assert_eq!(of_it, 15, "of 40 looks at a plan of which it is 36 %");
    let mut at: Vec<f64> = places
        .iter()
        .filter(|place| place.part.request == 17)
        .map(|place| place.at)
        .collect();
    at.sort_by(f64::total_cmp);
    assert!(
        at.windows(2).all(|two| two[1] - two[0] < 2.0 * 0.04 / 15.0),
        "{at:?}"
    );
}

#[test]
fn there_are_about_as_many_places_as_asked_for() {
    for looks in [5, 12, 40] {
        for seconds in [vec![1.0; 3], vec![1.0; 40], vec![0.1; 2000], vec![5.0, 0.1, 0.1]] {
            let costs = costs(&seconds);
            let places = costs.places(looks, 3).len();
            let large = seconds
                .iter()
                .filter(|one| **one >= costs.seconds / looks as f64)
                .count();
            assert!(
                (looks..=looks + large + 1).contains(&places),
                "{looks} {} {places}",
                seconds.len()
            );
        }
    }
    assert!(costs(&[]).places(5, 1).is_empty());
    assert!(costs(&[0.0; 9]).places(5, 1).is_empty(), "nothing costs anything");
}

#[test]
fn each_beginning_is_spread() {
    assert_eq!(in_spread_order((0..8).collect()), [0, 4, 2, 6, 1, 5, 3, 7]);
    assert_eq!(in_spread_order((0..5).collect()), [0, 4, 2, 1, 3]);
    assert!(in_spread_order(Vec::<u8>::new()).is_empty());
}

#[test]
fn what_is_read_by_block_costs_all_paths_of_its_device_also_those_that_no_request_names() {
    use headstart_model::testing::{FLASH, draft, plan_file, planned};
    let block = Request::new(RequestKind::Metadata, headstart_model::plan::NO_FILE, 64 << 20);
    // The share of the cost that the looks at each file stand for.
    let shares = |files: usize, requests: Vec<Request>| -> Vec<f64> {
        let files: Vec<_> = (0..files).map(|n| planned(&format!("/d{n}"))).collect();
        let mut shares = vec![0.0; files.len()];
        let file = plan_file(&draft(FLASH, files, requests));
        let costs = Costs::for_plan(&file.plan().unwrap());
        for place in costs.places(40, 3) {
            let request = costs.requests[place.part.request];
            shares[request.file as usize] += place.weight / costs.seconds;
        }
        shares
    };
    for share in shares(4, vec![block]) {
        assert!((share - 0.25).abs() < 0.03, "{share}");
    }
    // One file whose page is read stands for no more of it than a directory.
    let shares = shares(10, vec![block, Request::new(RequestKind::Data, 0, 4096)]);
    assert!(shares[0] < 0.2, "{shares:?}");
}
