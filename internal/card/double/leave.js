// Tells the page around this frame where to go. The browser delivers the message only to the origin that the session names.
{
  const { to, parent: origin } = document.currentScript.dataset;
  parent.postMessage({ leave: to }, origin);
}
