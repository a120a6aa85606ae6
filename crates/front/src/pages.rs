//! Lists of the broker's records, which come in pages.

use isthmus_wire::bounds::NAMES;
use isthmus_wire::proto::list_request::Records;
use isthmus_wire::proto::{ListReply, ListRequest, NodeFilter, SiteFilter};
use tonic::Status;

use crate::without_broker;

/// Most pages of one list: about 4 million records. It bounds a list that a faulty
/// broker never ends.
const MOST_PAGES: usize = 4096;

/// Collects all pages; `page` fetches one, within a deadline. Names that are too
/// many for one request are split over several.
///
/// # Errors
/// The status of a page.
pub(crate) async fn all<F>(records: Records, page: impl Fn(ListRequest) -> F) -> Result<ListReply, Status>
where
    F: Future<Output = Result<ListReply, Status>>,
{
    let mut all = ListReply::default();
    for records in in_requests(records) {
        let mut token = Vec::new();
        for _ in 0..MOST_PAGES {
            let request =
                ListRequest { page_token: token, records: Some(records.clone()), ..Default::default() };
            let reply = page(request).await?;
            all.nodes.extend(reply.nodes);
            all.sites.extend(reply.sites);
            all.relays.extend(reply.relays);
            all.jobs.extend(reply.jobs);
            all.paths.extend(reply.paths);
            without_broker::join(&mut all.without_broker, reply.without_broker);
            (all.grid, all.own, token) = (reply.grid, reply.own, reply.next_page_token);
            if token.is_empty() {
                break;
            }
        }
    }
    Ok(all)
}

/// Splits a request with many names into several requests.
fn in_requests(records: Records) -> Vec<Records> {
    match records {
        // The agent may add its own name to the first.
        Records::Nodes(filter) if filter.names.len() + filter.sites.len() >= NAMES => {
            let (names, sites) = (filter.names.chunks(NAMES - 1), filter.sites.chunks(NAMES - 1));
            let parts = names.map(|names| (names.to_vec(), Vec::new()));
            let parts = parts.chain(sites.map(|sites| (Vec::new(), sites.to_vec())));
            let request = |(index, (names, sites))| {
                let own = filter.own && index == 0;
                Records::Nodes(NodeFilter { names, sites, own, ..filter.clone() })
            };
            parts.enumerate().map(request).collect()
        }
        Records::Sites(filter) if filter.names.len() > NAMES => filter
            .names
            .chunks(NAMES)
            .map(|names| Records::Sites(SiteFilter { names: names.to_vec() }))
            .collect(),
        records => vec![records],
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use isthmus_wire::bounds::Bounded as _;
    use isthmus_wire::proto::Node;

    use super::*;

    #[tokio::test]
    async fn pages_are_asked_for_until_there_is_none() {
        let asked = RefCell::new(Vec::new());
        let page = |request: ListRequest| {
            let number: u8 = request.page_token.first().copied().unwrap_or_default();
            asked.borrow_mut().push(number);
            let nodes = vec![Node { slots: number.into(), ..Node::default() }];
            let next_page_token = if number < 3 { vec![number + 1] } else { Vec::new() };
            async move { Ok(ListReply { nodes, next_page_token, ..ListReply::default() }) }
        };
        let reply = all(Records::Nodes(NodeFilter::default()), page).await.unwrap();
        assert_eq!(reply.nodes.iter().map(|node| node.slots).collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert_eq!(*asked.borrow(), [0, 1, 2, 3]);
    }

    #[test]
    fn many_sites_take_several_requests() {
        for (count, want) in [(0, 1), (NAMES, 1), (2 * NAMES + 1, 3)] {
            let names: Vec<_> = (0..count).map(|n| format!("s{n}")).collect();
            let requests = in_requests(Records::Sites(SiteFilter { names: names.clone() }));
            assert_eq!(requests.len(), want, "{count}");
            let named = requests.iter().flat_map(|records| match records {
                Records::Sites(filter) => filter.names.clone(),
                other => panic!("{other:?}"),
            });
            assert_eq!(named.collect::<Vec<_>>(), names);
            for records in requests {
                assert!(ListRequest { records: Some(records), ..ListRequest::default() }.check().is_ok());
            }
        }
    }

    #[test]
    fn many_names_take_several_requests() {
        let some = |count: usize| (0..count).map(|n| format!("n{n}.alpha")).collect::<Vec<_>>();
        for (names, sites, want) in [(0, 0, 1), (NAMES - 1, 0, 1), (NAMES, 0, 2), (NAMES, NAMES, 4)] {
            let filter =
                NodeFilter { names: some(names), sites: some(sites), own: true, ..NodeFilter::default() };
            let requests = in_requests(Records::Nodes(filter));
            assert_eq!(requests.len(), want, "{names} {sites}");
            let mut counted = [0, 0];
            for (index, records) in requests.into_iter().enumerate() {
                let Records::Nodes(filter) = &records else { panic!("{records:?}") };
                counted[0] += filter.names.len();
                counted[1] += filter.sites.len();
                assert_eq!(filter.own, index == 0);
                assert!(ListRequest { records: Some(records), ..ListRequest::default() }.check().is_ok());
            }
            assert_eq!(counted, [names, sites]);
        }
    }
}
