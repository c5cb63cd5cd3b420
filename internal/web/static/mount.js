// Puts the form of the card processor into its place on the page.
(() => {
  const at = document.getElementById("payment");
  if (!window.Stripe) {
    return;
  }
  Stripe(at.dataset.key).createEmbeddedCheckoutPage({ clientSecret: at.dataset.secret }).then((page) => page.mount(at));
})();
