//! What models ask for, and the tools that are right for it.
//!
//! The questions were written from what the servers are for, before anything was ranked. The search
//! was tuned on those at even places; those at odd places check it. Must not: be changed so that a
//! figure looks better.

/// A question, and the names of the tools that answer it, apart by blanks. Names of servers that a
/// test does not have do not count.
pub(super) const QUESTIONS: &[(&str, &str)] = &[
    (
        "list files in a directory",
        "fs_list_directory fs_list_directory_with_sizes fs_directory_tree desktop_list_directory",
    ),
    (
        "read a text file from disk",
        "fs_read_text_file fs_read_file fs_read_multiple_files desktop_read_file desktop_read_multiple_files",
    ),
    (
        "which commits changed this file",
        "git_git_log github_list_commits glab_list_commits glab_get_file_blame",
    ),
    ("rename a file", "fs_move_file desktop_move_file"),
    ("find files by name pattern", "fs_search_files desktop_start_search"),
    (
        "how big is this file and when was it modified",
        "fs_get_file_info desktop_get_file_info fs_list_directory_with_sizes",
    ),
    ("replace some lines in a source file", "fs_edit_file desktop_edit_block"),
    ("make a new folder", "fs_create_directory desktop_create_directory"),
    ("open an image file and see it", "fs_read_media_file desktop_read_file"),
    ("which directories may I access", "fs_list_allowed_directories"),
    ("save text to a file", "fs_write_file desktop_write_file"),
    ("remember a fact about a person", "memory_add_observations memory_create_entities"),
    (
        "forget what was stored about someone",
        "memory_delete_entities memory_delete_observations memory_delete_relations",
    ),
    (
        "look up what I know about a topic",
        "memory_search_nodes memory_open_nodes memory_read_graph",
    ),
    ("connect two entities in the knowledge graph", "memory_create_relations"),
    ("think step by step about a hard problem", "thinking_sequentialthinking"),
    ("open a pull request", "github_create_pull_request"),
    ("merge a pull request", "github_merge_pull_request"),
    ("comment on a GitHub issue", "github_add_issue_comment"),
    (
        "file a bug in the repository",
        "github_create_issue gitlab_create_issue glab_create_issue",
    ),
    ("search code on GitHub", "github_search_code"),
    ("has the CI passed for this pull request", "github_get_pull_request_status"),
    ("which files does the pull request change", "github_get_pull_request_files"),
    (
        "fork a project",
        "github_fork_repository gitlab_fork_repository glab_fork_repository",
    ),
    ("create a merge request", "gitlab_create_merge_request glab_create_merge_request"),
    (
        "push several files in one commit",
        "github_push_files gitlab_push_files glab_push_files",
    ),
    (
        "find repositories about machine learning",
        "github_search_repositories gitlab_search_repositories glab_search_repositories",
    ),
    (
        "start a new branch",
        "github_create_branch gitlab_create_branch glab_create_branch git_git_create_branch",
    ),
    ("send a message to a Slack channel", "slack_slack_post_message"),
    ("answer someone in a Slack thread", "slack_slack_reply_to_thread"),
    ("read recent messages of a channel", "slack_slack_get_channel_history"),
    ("put a thumbs up emoji on a Slack message", "slack_slack_add_reaction"),
    ("who are the members of our Slack workspace", "slack_slack_get_users"),
    ("coordinates of a street address", "maps_maps_geocode"),
    ("what address is at this latitude and longitude", "maps_maps_reverse_geocode"),
    ("driving directions between two cities", "maps_maps_directions"),
    ("how far is it from A to B", "maps_maps_distance_matrix maps_maps_directions"),
    ("restaurants nearby", "maps_maps_search_places brave_brave_local_search"),
    ("altitude of a mountain", "maps_maps_elevation"),
    (
        "opening hours and reviews of a place",
        "maps_maps_place_details brave_brave_local_search",
    ),
    ("search the web for news", "brave_brave_web_search firecrawl_firecrawl_search"),
    ("download a web page as markdown", "web_fetch firecrawl_firecrawl_scrape"),
    ("what time is it in Tokyo", "time_get_current_time time_convert_time"),
    ("convert a time from one time zone to another", "time_convert_time"),
    ("what did I change but not stage", "git_git_diff_unstaged git_git_status"),
    ("stage files for commit", "git_git_add"),
    (
        "show the content of a commit",
        "git_git_show glab_get_commit glab_get_commit_diff",
    ),
    ("undo staged changes", "git_git_reset"),
    ("switch to another branch", "git_git_checkout"),
    ("commit my work", "git_git_commit"),
    ("add two numbers", "everything_get_sum"),
    ("environment variables of the server", "everything_get_env"),
    ("compress a file with gzip", "everything_gzip_file_as_resource"),
    ("a tiny picture for testing", "everything_get_tiny_image"),
    ("profile of a Slack user", "slack_slack_get_user_profile"),
    (
        "what did reviewers say about the pull request",
        "github_get_pull_request_reviews github_get_pull_request_comments",
    ),
    // Of the servers that only the long test has.
    (
        "take a screenshot of the page",
        "playwright_browser_take_screenshot puppeteer_puppeteer_screenshot devtools_take_screenshot",
    ),
    (
        "go to a URL in the browser",
        "playwright_browser_navigate puppeteer_puppeteer_navigate devtools_navigate_page devtools_new_page",
    ),
    (
        "fill in a web form",
        "playwright_browser_fill_form devtools_fill_form devtools_fill puppeteer_puppeteer_fill",
    ),
    (
        "click a button on the page",
        "playwright_browser_click puppeteer_puppeteer_click devtools_click",
    ),
    (
        "run JavaScript in the page",
        "playwright_browser_evaluate playwright_browser_run_code_unsafe puppeteer_puppeteer_evaluate devtools_evaluate_script",
    ),
    (
        "errors in the browser console",
        "playwright_browser_console_messages devtools_list_console_messages devtools_get_console_message",
    ),
    (
        "which HTTP requests did the page make",
        "playwright_browser_network_requests playwright_browser_network_request devtools_list_network_requests devtools_get_network_request",
    ),
    (
        "record a performance trace",
        "devtools_performance_start_trace devtools_performance_stop_trace",
    ),
    (
        "upload a file through a file chooser",
        "playwright_browser_file_upload devtools_upload_file",
    ),
    ("simulate a slow network", "devtools_emulate"),
    ("check memory leak of a web page", "devtools_take_heapsnapshot"),
    ("logs of a pod", "kubernetes_kubectl_logs"),
    ("scale a deployment to five replicas", "kubernetes_kubectl_scale"),
    (
        "roll back a deployment",
        "kubernetes_kubectl_rollout circleci_run_rollback_pipeline",
    ),
    ("run a command inside a container", "kubernetes_exec_in_pod"),
    ("install a helm chart", "kubernetes_install_helm_chart"),
    ("drain a node", "kubernetes_node_management"),
    ("forward a local port to a service", "kubernetes_port_forward"),
    ("apply a YAML manifest", "kubernetes_kubectl_apply kubernetes_kubectl_create"),
    ("insert documents into a collection", "mongodb_insert_many"),
    ("create an index on a field", "mongodb_create_index"),
    ("group and sum documents", "mongodb_aggregate"),
    ("which fields do documents of the collection have", "mongodb_collection_schema"),
    ("why is this database query slow", "mongodb_explain"),
    ("delete a database", "mongodb_drop_database"),
    (
        "create a Jira ticket",
        "atlassian_jira_create_issue atlassian_jira_batch_create_issues",
    ),
    ("move a ticket to done", "atlassian_jira_transition_issue"),
    ("log time spent on an issue", "atlassian_jira_add_worklog"),
    ("search tickets with JQL", "atlassian_jira_search"),
    (
        "what is in the current sprint",
        "atlassian_jira_get_sprint_issues atlassian_jira_get_sprints_from_board",
    ),
    (
        "write a wiki page",
        "atlassian_confluence_create_page atlassian_confluence_update_page",
    ),
    ("find a page in Confluence", "atlassian_confluence_search"),
    (
        "attach a file to a Confluence page",
        "atlassian_confluence_upload_attachment atlassian_confluence_upload_attachments",
    ),
    ("assign the issue to a colleague", "atlassian_jira_assign_issue"),
    ("who approved this merge request", "glab_get_merge_request_approval_state"),
    ("who wrote this line of code", "glab_get_file_blame"),
    ("protect the main branch", "glab_protect_branch"),
    (
        "check my .gitlab-ci.yml for mistakes",
        "glab_validate_ci_lint glab_validate_project_ci_lint",
    ),
    ("mark all my todos as done", "glab_mark_all_todos_done"),
    ("close an issue on GitLab", "glab_update_issue"),
    (
        "add a paragraph to a Notion page",
        "notion_API_patch_block_children notion_API_update_page_markdown",
    ),
    ("query a Notion database", "notion_API_query_data_source"),
    ("who is in the Notion workspace", "notion_API_get_users"),
    ("start a long running terminal command", "desktop_start_process"),
    ("kill a process", "desktop_kill_process desktop_force_terminate"),
    (
        "list contacts in the CRM",
        "hubspot_hubspot_list_objects hubspot_hubspot_search_objects",
    ),
    ("add a note to a deal", "hubspot_hubspot_create_engagement"),
    ("why did my build fail", "circleci_get_build_failure_logs"),
    ("which tests are flaky", "circleci_find_flaky_tests"),
    ("restart the failed workflow", "circleci_rerun_workflow"),
    ("crawl a whole website", "firecrawl_firecrawl_crawl"),
    (
        "extract structured data from pages",
        "firecrawl_firecrawl_extract firecrawl_firecrawl_scrape",
    ),
    ("watch a page for changes", "firecrawl_firecrawl_monitor_create"),
    (
        "papers about a research topic",
        "firecrawl_firecrawl_research_search_papers firecrawl_firecrawl_research_related_papers",
    ),
    (
        "latest errors of my project in Sentry",
        "sentry_search_issues sentry_search_events",
    ),
    ("find the root cause of a crash", "sentry_analyze_issue_with_seer"),
];
