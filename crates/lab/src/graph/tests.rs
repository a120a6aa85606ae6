use super::layout::{Area, Layout, SMALL, TEXT, arrange};
use super::text::width;
use super::*;
use crate::presets::PRESETS;

fn grid(sites: usize, nodes: usize) -> Grid {
    let mut text = "[[host]]\nname = 'hub'\nroles = ['broker', 'relay']\n".to_owned();
    for site in 0..sites {
        let nodes: Vec<String> = (1..=nodes)
            .map(|node| {
                let roles = if node == 1 { "'gateway', 'agent'" } else { "'agent'" };
                format!("{{ name = 'n{node}', roles = [{roles}] }}")
            })
            .collect();
        text += &format!(
            "[[site]]\nname = 's{site}'\nkind = 'nat'\nsubnet = '192.168.1.0/24'\nnodes = [{}]\n\
             link = {{ delay = '2.5 ms', rate = '1 Gbit/s' }}\n",
            nodes.join(", ")
        );
    }
    Grid::parse(&text, "test", "test").unwrap()
}

fn layout(grid: &Grid) -> Layout {
    let faults = FaultRecord::default();
    let hosts = grid.hosts.iter().map(|host| host_card(host, &faults)).collect();
    arrange(hosts, grid.sites.iter().map(|site| site_card(site, &faults)).collect())
}

fn overlap(a: &Area, b: &Area) -> bool {
    a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height
}

#[test]
fn nothing_overlaps_or_leaves_its_box() {
    let mut grids: Vec<Grid> = PRESETS.iter().map(|preset| preset.grid().unwrap()).collect();
    grids.extend([(1, 1), (2, 16), (8, 16), (12, 3), (3, 0)].map(|(sites, nodes)| grid(sites, nodes)));
    for grid in &grids {
        let layout = layout(grid);
        assert_eq!(layout.cards.len(), grid.hosts.len() + grid.sites.len());
        let page = Area { x: 0.0, y: 0.0, width: layout.width, height: layout.height };
        for (number, placed) in layout.cards.iter().enumerate() {
            let area = &placed.area;
            assert!(area.x >= page.x && area.x + area.width <= page.width, "{}: {placed:?}", grid.name);
            assert!(area.y >= page.y && area.y + area.height <= page.height, "{}: {placed:?}", grid.name);
            assert!(!overlap(area, &layout.band));
            for other in &layout.cards[number + 1..] {
                assert!(!overlap(area, &other.area), "{} and {}", placed.card.title, other.card.title);
            }
            let right = area.x + area.width;
            for row in &placed.card.rows {
                assert!(placed.columns[0] + width(&row.name, TEXT) <= placed.columns[1]);
                assert!(placed.columns[1] + width(&row.address, TEXT) <= right);
                assert!(placed.columns[2] + width(&row.remarks(), SMALL) <= right, "{row:?}");
            }
        }
    }
}

#[test]
fn many_nodes_that_are_alike_are_one_row() {
    let rows = rows(&grid(1, 16).sites[0], &FaultRecord::default());
    let seen: Vec<_> = rows.iter().map(|row| (row.name.as_str(), row.address.as_str())).collect();
    assert_eq!(seen, [("n1", "192.168.1.2"), ("n2 – n16 (15)", "192.168.1.3 – .17")]);
    // A node that differs stands out.
    let faults = FaultRecord { cut: ["n7.s0".to_owned()].into(), ..FaultRecord::default() };
    let names: Vec<_> = super::rows(&grid(1, 16).sites[0], &faults).into_iter().map(|row| row.name).collect();
    assert_eq!(names, ["n1", "n2 – n6 (5)", "n7", "n8 – n16 (9)"]);
}

#[test]
fn directions_that_differ_have_labels_of_their_own() {
    let grid = |link: &str| {
        let text = format!("[[host]]\nname = 'hub'\nlink = {link}\n");
        labels(None, &Grid::parse(&text, "test", "test").unwrap().hosts[0].link)
    };
    assert_eq!(
        grid("{ delay = '1 ms', rate = '1 Gbit/s' }"),
        Labels::Both(vec!["1 ms".into(), "1 Gbit/s".into()])
    );
    let each = grid("{ delay = '2 ms', jitter = '1 ms', up = { loss = '1 %', burst = 3 } }");
    let up = vec!["2 ms ± 1 ms".into(), "1 % loss".into(), "bursts of 3".into()];
    assert_eq!(each, Labels::Each { up, down: vec!["2 ms ± 1 ms".into()] });
    assert_eq!(grid("{}"), Labels::Both(vec![]));
}

#[test]
fn the_picture_names_everything_and_marks_what_is_broken() {
    let grid = PRESETS[0].grid().unwrap();
    let whole = svg(&grid, &FaultRecord::default());
    for text in
        ["alpha", "beta", "hub", "n2", "192.168.1.3", "gateway, agent", "5 ms", "1 Gbit/s", "198.51.100.0/24"]
    {
        assert!(whole.contains(text), "{text}");
    }
    assert!(!whole.contains("stroke-dasharray") && !whole.contains('✕'));
    let faults = FaultRecord {
        cut: ["alpha".to_owned(), "n1.beta".to_owned()].into(),
        frozen: ["n2.beta".to_owned()].into(),
    };
    let broken = svg(&grid, &faults);
    assert_eq!(broken.matches("stroke-dasharray").count(), 1);
    assert!(broken.contains("✕ cut · gateway") && broken.contains("✕ frozen · agent"));
}
